//! `nicekv config`: what is printed is good, and what is wrong is told with file, line, field and what to do.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn nicekv(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_nicekv")).args(arguments).output().unwrap()
}

fn printed(role: &str) -> String {
    let output = nicekv(&["config", "print", role]);
    assert_eq!(output.status.code(), Some(0));
    String::from_utf8(output.stdout).unwrap()
}

/// The files of a cluster of three nodes, as printed, with what each node and host has of its own.
struct Files {
    directory: tempfile::TempDir,
    paths: Vec<PathBuf>,
}

impl Files {
    fn new() -> Self {
        let mut files = Self { directory: tempfile::tempdir().unwrap(), paths: Vec::new() };
        for role in ["metadata", "switch", "gateway"] {
            files.add(role, &printed(role));
        }
        for number in 0..3 {
            files.add(&format!("node-{number}"), &node(number));
        }
        files
    }

    fn add(&mut self, name: &str, text: &str) {
        let path = self.path(name);
        std::fs::write(&path, text).unwrap();
        self.paths.push(path);
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(format!("{name}.toml"))
    }

    fn check(&self) -> Output {
        let paths: Vec<&str> = self.paths.iter().map(|path| path.to_str().unwrap()).collect();
        nicekv(&[&["config", "check"], &paths[..]].concat())
    }

    /// With `from` in one file replaced, exactly this is wrong there.
    #[track_caller]
    fn refused(&self, name: &str, from: &str, to: &str, told: &[&str]) {
        let path = self.path(name);
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.contains(from), "{name} has no {from}");
        std::fs::write(&path, text.replacen(from, to, 1)).unwrap();
        let output = self.check();
        std::fs::write(&path, text).unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), output.stdout.is_empty()), (Some(2), true), "{error}");
        let line = error.lines().find(|line| told.iter().all(|part| line.contains(part)));
        assert!(
            line.is_some_and(|line| line.contains(&format!("{name}.toml"))),
            "{told:?} is not in: {error}"
        );
        assert!(error.lines().all(|line| line.starts_with("nicekv: ")), "{error}");
    }
}

fn node(number: u16) -> String {
    let (port, name) = (number + 1, format!("node-{number}"));
    printed("node")
        .replace("node-0", &name)
        .replace("id = 0 ", &format!("id = {number} "))
        .replace("10.20.1.1", &format!("10.20.1.{port}"))
        .replace("02:00:00:00:01:01", &format!("02:00:00:00:01:0{port}"))
        .replace("switch_port = 1 ", &format!("switch_port = {port} "))
}

fn line_of(path: &Path, start: &str) -> usize {
    let text = std::fs::read_to_string(path).unwrap();
    text.lines().position(|line| line.starts_with(start)).unwrap() + 1
}

#[test]
fn the_printed_files_make_a_cluster_and_a_further_node_is_to_be_added() {
    let mut files = Files::new();
    let output = files.check();
    let told = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(told.lines().count(), 6, "{told}");
    assert!(told.lines().all(|line| line.contains(": good, of a ")), "{told}");
    files.add("node-3", &node(3));
    let switch = printed("switch").replacen("ports = [", "ports = [{ number = 4, device = \"port-4\" },", 1);
    std::fs::write(files.path("switch"), switch).unwrap();
    let told = String::from_utf8(files.check().stdout).unwrap();
    assert!(told.contains("note: ") && told.contains("nicekv node add node-3 --config "), "{told}");
}

#[test]
fn the_file_of_the_whole_cluster_is_good_and_is_every_roles() {
    let mut files = Files { directory: tempfile::tempdir().unwrap(), paths: Vec::new() };
    files.add("cluster", &printed("cluster"));
    let output = files.check();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(String::from_utf8(output.stdout).unwrap().contains("good, of the whole cluster"));
    let path = files.path("cluster");
    let refused = nicekv(&["gateway", "--config", path.to_str().unwrap(), "--name", "nobody"]);
    assert!(String::from_utf8(refused.stderr).unwrap().contains("no gateway named"));
}

#[test]
fn one_file_is_refused_with_line_field_and_what_to_do() {
    let files = Files::new();
    let at = |name: &str, start: &str| format!("{name}.toml:{}:", line_of(&files.path(name), start));
    let replicas = at("metadata", "#replicas");
    files.refused(
        "metadata",
        "#replicas = 3",
        "replicas = 4",
        &[&replicas, "replicas: 4 replicas", "there are 3"],
    );
    files.refused("node-1", "#linger_us", "lingers_us", &["unknown field `lingers_us`", "`linger_us`"]);
    files.refused("switch", "number = 1", "number = 2", &["ports[2].number", "give one another"]);
    files.refused("gateway", "127.0.0.1:6379", "6379", &[&at("gateway", "listen"), "localhost:7400"]);
    files.refused("node-2", "cluster_id", "# cluster_id", &["missing field `cluster_id`"]);
    files.refused("metadata", "#lease_ms = 150", "lease_ms = 40", &["timing.lease_ms", "heartbeat_ms"]);
    files.refused(
        "gateway",
        "# metrics = \"127.0.0.1:9464\"",
        "metrics = \"127.0.0.1:6379\"",
        &["metrics", "another port"],
    );
}

#[test]
fn files_are_checked_against_each_other() {
    let files = Files::new();
    let at = |name: &str, start: &str| format!("{name}.toml:{}:", line_of(&files.path(name), start));
    let address = at("node-1", "address = \"10.20.1.2\"");
    files.refused(
        "node-1",
        "\"10.20.1.2\"",
        "\"10.20.1.3\"",
        &[&address, "nodes[0].address", "make them equal"],
    );
    files.refused("node-2", "id = 2 ", "id = 1 ", &["nodes[0].id", "node-2 has 2"]);
    files.refused("gateway", "#port = 7400", "port = 7401", &[&at("gateway", "#port"), "7401 here, 7400 in"]);
    files.refused("switch", "10.30.0.1:7400", "10.30.0.9:7400", &["no control 10.30.0.9:7400"]);
    files.refused("switch", "name = \"switch\"", "name = \"other\"", &["switches[0].name", "add it there"]);
    files.refused("switch", "{ number = 1", "{ number = 9", &["node-0 hangs at port 1"]);
    files.refused("node-0", "#heartbeat_ms = 40", "heartbeat_ms = 50", &["50 here, 40 in"]);
}

#[test]
fn a_role_refuses_the_file_of_another_and_what_is_no_file() {
    let files = Files::new();
    let path = files.path("node-0");
    let output = nicekv(&["switch", "--config", path.to_str().unwrap(), "--name", "switch"]);
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), error.lines().count()), (Some(2), 1), "{error}");
    assert!(error.contains("the file of a node, not of a switch"), "{error}");
    let output = nicekv(&["config", "check", "/nowhere.toml"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8(output.stderr).unwrap().contains("/nowhere.toml"));
    assert_eq!(nicekv(&["config", "check"]).status.code(), Some(2));
}

#[test]
fn certificates_for_etcd_are_read_before_anything_is_bound_or_begun() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let text: String = printed("metadata")
        .lines()
        .filter(|line| !line.starts_with("data_directory"))
        .map(|line| format!("{line}\n"))
        .collect();
    let text =
        text.replace("10.20.0.2", "127.20.0.2").replace(", \"10.30.0.1:7400\"", "").replace(":7400", ":7419");
    std::fs::write(path("metadata.toml"), text.replace("#port = 7400", "port = 7419")).unwrap();
    std::fs::write(path("no.pem"), "nothing").unwrap();
    let config = path("metadata.toml");
    let metadata = ["metadata", "--config", &config, "--store", "etcd", "--endpoints", "https://127.0.0.1:9"];
    let (missing, broken) = (path("missing.pem"), path("no.pem"));
    for (arguments, told) in [
        (&[][..], "ca_file"),
        (&["--ca-file", &missing], "missing.pem: No such file"),
        (&["--ca-file", &broken], "no.pem: it has no certificate"),
    ] {
        let output = nicekv(&[&metadata[..], arguments].concat());
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), error.lines().count()), (Some(2), 1), "{error}");
        assert!(error.contains(told), "{told}: {error}");
    }
    let output = nicekv(&[&metadata[..], &["--ca-file", &broken, "--certificate-file", &broken]].concat());
    assert_eq!(output.status.code(), Some(2), "a certificate without its key");
}

/// A file as printed, with other switches.
fn with_switches(role: &str, switches: &str) -> String {
    let text = printed(role);
    let begin = text.find("\n[[switches]]").unwrap() + 1;
    let end = text[begin..].find("\n[log]").map_or(text.len(), |end| begin + end);
    format!("{}{switches}{}", &text[..begin], &text[end..])
}

#[test]
fn the_example_with_a_trunk_is_a_cluster() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/guide/operations.md");
    let text = std::fs::read_to_string(path).unwrap();
    let examples = text.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next());
    let examples: Vec<&str> = examples.filter(|example| example.contains("[[switches]]")).collect();
    let [first, second, rack] = examples[..] else { panic!("{examples:?}") };
    let mut alone = Files { directory: tempfile::tempdir().unwrap(), paths: Vec::new() };
    alone.add("rack", &with_switches("switch", rack));
    let output = alone.check();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let files = |homes: [&str; 3]| {
        let mut files = Files { directory: tempfile::tempdir().unwrap(), paths: Vec::new() };
        let mut metadata = with_switches("metadata", &format!("{first}\n{second}"));
        metadata = metadata.replace("switch_port = 0 ", "switch = \"switch\"\nswitch_port = 0 ");
        for (number, home) in homes.into_iter().enumerate() {
            let name = format!("name = \"node-{number}\"");
            metadata = metadata.replacen(&name, &format!("switch = {home:?}\n{name}"), 1);
        }
        files.add("metadata", &metadata);
        files.add("first", &with_switches("switch", first));
        files.add("second", &with_switches("switch", second));
        files
    };
    let output = files(["switch", "switch-1", "switch-1"]).check();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let output = files(["switch-1", "switch-1", "switch-1"]).check();
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(2) && told.contains("node-0 hangs at port 1"), "{told}");
}

#[test]
fn what_the_container_file_takes_is_there() {
    let tree = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    let file = std::fs::read_to_string(tree.join("deploy/Containerfile")).unwrap();
    let line = |word: &str| {
        file.lines().find_map(|line| line.strip_prefix(word)).unwrap_or_else(|| panic!("{word}"))
    };
    // What it copies is what the package's build leaves there, by its name; what it runs is in the package.
    let build = std::fs::read_to_string(tree.join("deploy/debian/build")).unwrap();
    assert!(line("COPY ").starts_with("nicekv_*.deb ") && build.contains("nicekv_"), "{build}");
    assert!(build.contains("usr/bin/nicekv") && line("ENTRYPOINT ") == "[\"/usr/bin/nicekv\"]");
    assert!(file.contains("deploy/debian/build deploy && podman build -f deploy/Containerfile"));
    // Its command is one of ours: all but what takes a word is known.
    let command: Vec<String> = serde_json::from_str(line("CMD ")).unwrap();
    let arguments: Vec<&str> = command.iter().map(String::as_str).chain(["--help"]).collect();
    assert_eq!(nicekv(&arguments).status.code(), Some(0), "{command:?}");
}

/// A cluster whose roles are all on one host: what each binds is told before any is started.
const ONE_HOST: &str = r#"
cluster_id = "000000000000000000000000c0ffee00"
replicas = 1
[metadata]
address = "127.20.255.1"
control = ["127.20.255.1:7400"]
data_directory = "metadata"
[[nodes]]
name = "node-0"
id = 0
address = "127.20.0.1"
mac = "02:00:00:00:01:01"
switch_port = 1
metrics = "127.0.0.1:9464"
[[switches]]
name = "switch"
control = ["127.20.255.1:7400"]
device = "other"
[[gateways]]
name = "gateway-0"
listen = "127.0.0.1:6379"
[[gateways]]
name = "gateway-1"
listen = "127.0.0.1:6380"
"#;

#[test]
fn roles_of_one_host_that_bind_the_same_are_refused() {
    let mut files = Files { directory: tempfile::tempdir().unwrap(), paths: Vec::new() };
    files.add("cluster", ONE_HOST);
    let output = files.check();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let lo = ("device = \"other\"", "device = \"lo\"");
    files.refused(
        "cluster",
        lo.0,
        lo.1,
        &["switches[0].device", "UDP port 7400 of every address of lo", "nicekv up"],
    );
    let same_port = ["gateways[1].listen: 127.0.0.1:6379 is gateway-0's (listen)", "give gateway-1 another"];
    files.refused("cluster", "127.0.0.1:6380", "127.0.0.1:6379", &same_port);
    files.refused("cluster", "127.0.0.1:6380", "0.0.0.0:9464", &["0.0.0.0:9464 is node-0's (metrics)"]);
    let every_network = ["metadata.control", "0.0.0.0 is every network", "no login"];
    files.refused(
        "cluster",
        "control = [\"127.20.255.1:7400\"]",
        "control = [\"0.0.0.0:7400\"]",
        &every_network,
    );
    files.refused(
        "cluster",
        "address = \"127.20.0.1\"",
        "address = \"0.0.0.0\"",
        &["nodes[0].address", "every network"],
    );
}

#[test]
fn roles_of_several_files_that_bind_the_same_are_refused() {
    let files = Files::new();
    let edit = |name: &str, from: &str, to: &str| {
        let text = std::fs::read_to_string(files.path(name)).unwrap();
        assert!(text.contains(from), "{name} has no {from}");
        std::fs::write(files.path(name), text.replacen(from, to, 1)).unwrap();
    };
    files.refused("gateway", "127.0.0.1:6379", "10.20.1.2:7400", &["10.20.1.2:7400 is node-1's (address)"]);
    // A node's host has a gateway, too, and both would serve their metrics at one port.
    edit("gateway", "# metrics = \"127.0.0.1:9464\"", "metrics = \"10.20.1.1:9464\"");
    let told = ["nodes[0].metrics: 10.20.1.1:9464 is gateway-0's (metrics) in ", "give node-0 another"];
    files.refused("node-0", "# metrics", "metrics", &told);
    // On hosts of their own they may have the same loopback address.
    edit("gateway", "10.20.1.1:9464", "127.0.0.1:9464");
    edit("node-0", "# metrics = \"10.20.1.1:9464\"", "metrics = \"127.0.0.1:9464\"");
    let output = files.check();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Files whose fields are listed, in the order in which a field is looked for: what it means is said where it is first explained.
const LISTED: [&str; 5] = ["metadata", "node", "switch", "user-switch", "gateway"];
/// What stands between the page's text and its list.
const LIST: &str = "<!-- list -->\n";

/// A field of a section, as the printed files explain it.
struct Field {
    section: String,
    name: String,
    value: String,
    meaning: String,
    files: Vec<&'static str>,
}

/// A name and the rest of the line, if it is a field; the default of one that is absent is said behind `#`, an example behind `# `.
fn field(line: &str) -> Option<(&str, &str)> {
    let (name, rest) = line.trim_start_matches(['#', ' ']).split_once(" = ")?;
    let is_name = name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
    (is_name && !line.starts_with("  ")).then_some((name, rest))
}

fn fields() -> Vec<Field> {
    let mut fields: Vec<Field> = Vec::new();
    for role in LISTED {
        let text = printed(role);
        let mut section = String::new();
        let mut last: Option<usize> = None;
        for line in text.lines() {
            let (code, comment) =
                line.find(" # ").map_or((line, ""), |at| (&line[..at], line[at + 3..].trim()));
            let code = code.trim_end();
            let bare = code.trim_start_matches(['#', ' ']);
            if bare.starts_with('[') && bare.ends_with(']') {
                section = bare.trim_matches(['[', ']']).to_owned();
                last = None;
            } else if let Some((name, value)) = field(code) {
                let value = match (code.starts_with("# "), code.starts_with('#')) {
                    _ if value == "[" => "required: a list".to_owned(),
                    (true, _) => format!("absent; such as `{value}`"),
                    (_, true) => format!("`{value}`"),
                    _ => format!("required; such as `{value}`"),
                };
                let known = fields.iter().position(|known| known.section == section && known.name == name);
                let meaning = comment.to_owned();
                if let Some(at) = known {
                    let is_said = !meaning.is_empty() && !meaning.starts_with("as in");
                    if fields[at].meaning.starts_with("as in") && is_said {
                        (fields[at].value, fields[at].meaning) = (value, meaning);
                    }
                    if !fields[at].files.contains(&role) {
                        fields[at].files.push(role);
                    }
                    last = None;
                } else {
                    let (section, name) = (section.clone(), name.to_owned());
                    fields.push(Field { section, name, value, meaning, files: vec![role] });
                    last = Some(fields.len() - 1);
                }
            } else if let (Some(at), false) = (last, comment.is_empty()) {
                // The explanation goes on.
                let meaning = &mut fields[at].meaning;
                *meaning = format!("{meaning} {comment}").trim().to_owned();
            }
        }
    }
    fields
}

/// The page's list: a table for each section.
fn reference() -> String {
    let fields = fields();
    let mut sections: Vec<&str> = Vec::new();
    for field in &fields {
        if !sections.contains(&field.section.as_str()) {
            sections.push(&field.section);
        }
    }
    let mut list = String::new();
    for section in sections {
        let heading = match section {
            "" => "Top level".to_owned(),
            "metadata" | "timing" | "hot" | "log" => format!("\\[{section}]"),
            _ => format!("\\[\\[{section}]]"),
        };
        list += &format!(
            "\n## {heading}\n\n| key | default | in the files of | meaning |\n| --- | --- | --- | --- |\n"
        );
        for field in fields.iter().filter(|field| field.section == section) {
            let Field { name, value, meaning, files, .. } = field;
            let files = if files.len() == LISTED.len() { "all".to_owned() } else { files.join(", ") };
            list += &format!("| `{name}` | {value} | {files} | {} |\n", meaning.replace('|', "\\|"));
        }
    }
    list
}

/// With `NICEKV_CONFIGURATION=write` the list is written anew.
#[test]
fn the_reference_lists_every_key_with_its_default() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/reference/configuration.md");
    let page = std::fs::read_to_string(&path).unwrap();
    let (text, list) = page.split_once(LIST).expect("the page has a list");
    let reference = reference();
    if std::env::var("NICEKV_CONFIGURATION").is_ok_and(|what| what == "write") {
        std::fs::write(&path, format!("{text}{LIST}{reference}")).unwrap();
        return;
    }
    assert!(
        list == reference,
        "docs/reference/configuration.md is not of these files: NICEKV_CONFIGURATION=write writes its list"
    );
}
