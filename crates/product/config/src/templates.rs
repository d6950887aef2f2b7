//! Configuration files to start from, rendered from the schema: every key that a role reads, with its help and its default.
//!
//! `#key = …` is a default, `# key = …` an example of a key that has none; `##` begins a comment.

use crate::cluster::RoleKind;
use crate::schema::{self, Default, Key, Section};
use clap::ValueEnum;
use std::fmt::Write as _;

/// Maximum columns of a comment line.
const COLUMNS: usize = 100;

/// The files that `nicekv config print` can print.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Template {
    /// The metadata service with all its instances
    Metadata,
    /// A storage node
    Node,
    /// A switch in the kernel, at XDP or tc
    Switch,
    /// The edge switch on each host, where the network cannot be programmed
    Edge,
    /// The switch in user space, for one machine
    UserSwitch,
    /// A gateway for Redis clients
    Gateway,
    /// One file for all roles
    Cluster,
}

/// How a template differs from the schema.
struct Shape {
    role: Option<RoleKind>,
    title: &'static str,
    /// Sections and keys that it leaves out, such as `switches.device`.
    hidden: &'static [&'static str],
    /// Keys that it sets, with their values.
    set: &'static [(&'static str, &'static str)],
    /// Examples that replace those of the schema.
    examples: &'static [(&'static str, &'static str)],
    /// Comments that replace the schema's help.
    comments: &'static [(&'static str, &'static str)],
    /// Sections that are printed as an example, commented out as a whole.
    optional: &'static [&'static str],
    /// Text of further entries of `[[nodes]]`.
    nodes: &'static str,
}

const THREE_NODES: &str = r#"
[[nodes]]
name = "node-1"
id = 1
address = "10.20.1.2"
mac = "02:00:00:00:01:02"
switch_port = 2

[[nodes]]
name = "node-2"
id = 2
address = "10.20.1.3"
mac = "02:00:00:00:01:03"
switch_port = 3
"#;
const RACK_PORTS: &str = r#"[
  { number = 0, device = "port-0" },
  { number = 1, device = "port-1" },
  { number = 2, device = "port-2" },
  { number = 3, device = "port-3", hook = "auto" },
  { number = 10, device = "port-10" },
]"#;
const EDGE_PORTS: &str = r#"[
  { number = 1, device = "vring1", hook = "tc" },
  { number = 0, device = "eth0", hook = "none" },
  { number = 2, device = "eth0", hook = "none" },
  { number = 3, device = "eth0", hook = "none" },
]"#;
const METADATA_CONTROL: &str = "[\"10.20.0.2:7400\", \"10.30.0.1:7400\"]";
const OTHER_INSTANCE: &str = "[{ name = \"metadata-1\", address = \"10.20.0.3\" }]";
const OWN_NAME: &str = "as in the switch's own file";
const PORTS_HELP: &str = "its interfaces: `number` is the `switch_port` of the host that is connected there, `device` the interface; optional: `hook`, \"xdp\", \"tc\", \"none\" (frames only leave there) or \"auto\", the default (tc on veth, XDP elsewhere, the other one if that fails); `trunk`, the switch at the other end, whose port has trunk = this switch: switches form a tree, and all hosts have the same router_mac";
const KEYSPACES_HELP: &str = "as in metadata.toml";

impl Template {
    #[allow(clippy::too_many_lines, reason = "a table of seven files")]
    fn shape(self) -> Shape {
        let plain = Shape {
            role: None,
            title: "",
            hidden: &[],
            set: &[],
            examples: &[],
            comments: &[],
            optional: &["keyspaces"],
            nodes: "",
        };
        match self {
            Self::Metadata => Shape {
                role: Some(RoleKind::Metadata),
                title: "The metadata service: nicekv metadata --config metadata.toml\n\nIt knows the nodes, switches and keyspaces, watches the nodes, and writes the tables of the switches. All of its instances use this file.",
                set: &[
                    ("metadata.mac", "\"02:00:00:00:00:02\""),
                    ("metadata.switch_port", "0"),
                    ("metadata.control", METADATA_CONTROL),
                    ("metadata.data_directory", "\"/var/lib/nicekv/metadata\""),
                    ("switches.router_mac", "\"02:00:00:00:00:01\""),
                ],
                comments: &[
                    ("switches.name", OWN_NAME),
                    (
                        "switches.router_mac",
                        "kernel switch, as in its own file; leave it out for a user-space switch",
                    ),
                ],
                nodes: THREE_NODES,
                ..plain
            },
            Self::Node => Shape {
                role: Some(RoleKind::Node),
                title: "A storage node: nicekv node --config node.toml --name node-0",
                set: &[("nodes.data_directory", "\"/var/lib/nicekv/node-0\"")],
                examples: &[("metadata.instances", OTHER_INSTANCE), ("switches.address", "\"10.20.0.1\"")],
                comments: &[
                    (
                        "switches.name",
                        "user-space switch only, because it hides the addresses of senders; as in its own file",
                    ),
                    ("switches.address", OWN_NAME),
                ],
                optional: &["switches"],
                ..plain
            },
            Self::Switch => Shape {
                role: Some(RoleKind::Switch),
                title: "A switch in the kernel of a host with several interfaces, at XDP or tc: nicekv switch --config switch.toml --name switch",
                hidden: &["switches.device", "switches.address"],
                set: &[
                    ("switches.control", "[\"10.30.0.1:7400\"]"),
                    ("switches.router_mac", "\"02:00:00:00:00:01\""),
                    ("switches.ports", RACK_PORTS),
                ],
                comments: &[("switches.ports", PORTS_HELP)],
                ..plain
            },
            Self::Edge => Shape {
                role: Some(RoleKind::Switch),
                title: "The edge switch of one host, where the network between hosts cannot be programmed: nicekv switch --config edge.toml --name edge-node-0\n\nThe host routes the virtual rings into a pair of veth interfaces. The edge is at the far end: it does what a switch would, and sends on through the host's interface.",
                hidden: &["switches.device", "switches.address"],
                set: &[
                    ("switches.name", "\"edge-node-0\""),
                    ("switches.control", "[\"10.20.0.2:7400\"]"),
                    ("switches.router_mac", "\"02:00:00:00:01:01\""),
                    ("switches.ports", EDGE_PORTS),
                ],
                examples: &[
                    ("switches.data_directory", "\"/var/lib/nicekv/edge-node-0\""),
                    ("switches.metrics", "\"10.20.1.1:9465\""),
                ],
                comments: &[
                    (
                        "switches.name",
                        "its name: nicekv switch --name edge-node-0; one of those in metadata.toml",
                    ),
                    ("switches.control", "`control` addresses of all metadata instances"),
                    (
                        "switches.router_mac",
                        "Ethernet address of this host's interface, from which frames leave",
                    ),
                    (
                        "switches.ports",
                        "this host's `switch_port`, at the far end of the veth pair; and those of all other servers, through this host's interface",
                    ),
                ],
                ..plain
            },
            Self::UserSwitch => Shape {
                role: Some(RoleKind::Switch),
                title: "The switch in user space, on a host of its own: nicekv switch --config user-switch.toml --name switch\n\nFor tests where the kernel takes no programs: one thread receives what is sent to the virtual rings and forwards it. The interface has the rings as addresses of its own (`ip route add local 10.10.0.0/16 dev eth0`, the other ring likewise), and hosts route the rings to it. It hides the addresses of senders: nodes name it in their files.",
                hidden: &["switches.router_mac", "switches.ports"],
                set: &[("switches.control", "[\"10.20.0.2:7400\"]")],
                comments: &[("switches.control", "`control` addresses of all metadata instances")],
                ..plain
            },
            Self::Gateway => Shape {
                role: Some(RoleKind::Gateway),
                title: "A gateway for Redis clients: nicekv gateway --config gateway.toml --name gateway-0",
                set: &[("gateways.listen", "\"127.0.0.1:6379\"")],
                examples: &[("metadata.instances", OTHER_INSTANCE)],
                ..plain
            },
            Self::Cluster => Shape {
                title: "One file for all roles of a cluster; `nicekv config print ROLE` prints one for a single role.",
                hidden: &["role"],
                set: &[
                    ("metadata.mac", "\"02:00:00:00:00:02\""),
                    ("metadata.switch_port", "0"),
                    ("metadata.control", METADATA_CONTROL),
                    ("metadata.data_directory", "\"/var/lib/nicekv/metadata\""),
                    ("nodes.data_directory", "\"/var/lib/nicekv/node-0\""),
                    ("switches.control", "\"10.30.0.1:7400\""),
                    ("switches.router_mac", "\"02:00:00:00:00:01\""),
                    ("switches.ports", RACK_PORTS),
                    ("gateways.listen", "\"127.0.0.1:6379\""),
                ],
                comments: &[("switches.ports", PORTS_HELP)],
                nodes: THREE_NODES,
                ..plain
            },
        }
    }

    /// The text of the file.
    pub fn text(self) -> String {
        let shape = self.shape();
        let mut text = comment("#", shape.title);
        text += &comment("#", "\n`#key = …` is a default, `# key = …` an example of a key that has none.");
        for section in schema::SECTIONS {
            let keys: Vec<&Key> = section.keys.iter().filter(|key| shape.has(section, key)).collect();
            if !keys.is_empty() && !shape.hidden.contains(&section.name) {
                shape.section(section, &keys, &mut text);
            }
        }
        text
    }
}

fn found<'a>(list: &[(&str, &'a str)], path: &str) -> Option<&'a str> {
    list.iter().find(|(known, _)| *known == path).map(|(_, found)| *found)
}

fn path(section: &Section, key: &Key) -> String {
    if section.name.is_empty() { key.name.into() } else { format!("{}.{}", section.name, key.name) }
}

impl Shape {
    fn has(&self, section: &Section, key: &Key) -> bool {
        let is_read = self.role.is_none_or(|role| key.roles.contains(&role));
        is_read && !self.hidden.contains(&&*path(section, key))
    }

    fn section(&self, section: &Section, keys: &[&Key], text: &mut String) {
        let is_optional = self.optional.contains(&section.name);
        if !section.name.is_empty() {
            let before = if is_optional { "# " } else { "" };
            let header =
                if section.is_list { format!("[[{}]]", section.name) } else { format!("[{}]", section.name) };
            _ = write!(text, "\n{}{before}{header}\n", comment("##", section.help));
        }
        for key in keys {
            let path = path(section, key);
            text.push_str(&comment("##", &self.comment(&path, key)));
            let set = found(self.set, &path);
            let value = set.or(found(self.examples, &path)).unwrap_or(key.shown_value());
            let before = match (is_optional, set, key.default) {
                (true, ..) | (false, None, Default::Absent(_)) if self.role_key(&path).is_none() => "# ",
                (false, None, Default::Value(_)) => "#",
                _ => "",
            };
            _ = writeln!(text, "{before}{} = {}", key.name, self.role_key(&path).unwrap_or(value.into()));
        }
        if section.name == "nodes" {
            text.push_str(self.nodes);
        }
    }

    /// The line of `role`, if the file is for one role.
    fn role_key(&self, path: &str) -> Option<String> {
        let role = self.role.filter(|_| path == "role")?;
        Some(format!("\"{}\"", role.name()))
    }

    fn comment(&self, path: &str, key: &Key) -> String {
        let is_elsewhere = key.is_shared && self.role.is_some_and(|role| role != RoleKind::Metadata);
        let help = match found(self.comments, path) {
            Some(comment) => return comment.into(),
            None if is_elsewhere => return KEYSPACES_HELP.into(),
            None => key.help,
        };
        match key.default {
            Default::Absent(absent) if absent.starts_with("required") => format!("{help}; {absent}"),
            Default::Absent(absent) if path != "role" => format!("{help}; default: {absent}"),
            _ => help.into(),
        }
    }
}

/// Comment lines that begin with `mark`, at most [`COLUMNS`] wide.
fn comment(mark: &str, text: &str) -> String {
    let mut lines = String::new();
    for paragraph in text.split('\n') {
        let mut line = mark.to_owned();
        for word in paragraph.split(' ').filter(|word| !word.is_empty()) {
            if line.len() + 1 + word.len() > COLUMNS && line != mark {
                _ = writeln!(lines, "{line}");
                line = mark.to_owned();
            }
            line = format!("{line} {word}");
        }
        _ = writeln!(lines, "{line}");
    }
    lines
}

#[cfg(test)]
mod tests;
