//! The file system of the operating system, as the kernel sees it: that a sync is a system call,
//! which calls make something durable and in which order, and who may read the files.

use nicekv_store::{
    DataDirectory, Expected, Files, GroupCommit, Log, LogIdentity, LogOptions, RealFiles, StoreError,
};
use std::{
    collections::HashSet,
    fs, io,
    os::unix::fs::{MetadataExt, PermissionsExt, symlink},
    path::{Path, PathBuf},
    process::Command,
    sync::{Arc, mpsc::channel},
};

const EXPECTED: Expected<'static> =
    Expected { cluster_id: Some(7), owner: "node-0", cluster_id_if_new: 7, storage_id_if_new: 9 };
/// Names the directory in which [`system_calls_of_the_file_layer`] works when it runs under strace.
const TRACED: &str = "NICEKV_TEST_TRACED";

#[test]
fn sync_reaches_the_kernel() {
    // /dev/null cannot be synced, and only the kernel knows that.
    let device = Path::new("/dev/null");
    let refused = |synced: io::Result<()>| synced.map_err(|error| error.kind());
    assert_eq!(refused(RealFiles.open(device, false).unwrap().sync()), Err(io::ErrorKind::InvalidInput));
    assert_eq!(refused(RealFiles.sync_directory(device)), Err(io::ErrorKind::InvalidInput));
}

/// The mode of a file in octal digits.
fn mode(path: &Path) -> String {
    format!("{:o}", fs::metadata(path).unwrap().mode() & 0o7777)
}

#[test]
fn new_files_are_private() {
    let scratch = tempfile::tempdir().unwrap();
    let (directory, file) = (scratch.path().join("a/b"), scratch.path().join("a/b/file"));
    RealFiles.create_directory(&directory).unwrap();
    RealFiles.open(&file, true).unwrap();
    let lock = RealFiles.try_lock(&directory.join("lock")).unwrap();
    assert!(lock.is_some());
    let modes = [&directory, &file, &directory.join("lock")].map(|path| mode(path));
    assert_eq!(modes, ["700", "600", "600"]);
}

#[test]
fn lock_is_not_inherited_by_children() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("lock");
    std::thread::scope(|scope| {
        // Each child holds a copy of every descriptor until it executes its program.
        let children = scope.spawn(|| (0..200).all(|_| Command::new("true").status().unwrap().success()));
        while !children.is_finished() {
            assert!(RealFiles.try_lock(&path).unwrap().is_some());
        }
        assert!(children.join().unwrap());
    });
}

#[test]
fn files_of_earlier_releases_become_private() {
    let scratch = tempfile::tempdir().unwrap();
    let (data, files) = (scratch.path().join("data"), Arc::new(RealFiles) as Arc<dyn Files>);
    drop(DataDirectory::open(&files, &data, EXPECTED).unwrap());
    let outside = scratch.path().join("outside");
    fs::write(&outside, "of somebody else").unwrap();
    symlink(&outside, data.join("link")).unwrap();
    fs::create_dir(data.join("engine")).unwrap();
    fs::write(data.join("engine/table"), "rows").unwrap();
    let open = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    for (path, mode) in [(&*data, 0o755), (&data.join("engine"), 0o775), (&data.join("engine/table"), 0o644)]
    {
        open(path, mode);
    }
    open(&data.join("nicekv-format"), 0o664);
    open(&outside, 0o644);

    drop(DataDirectory::open(&files, &data, EXPECTED).unwrap());
    let paths =
        [data.clone(), data.join("engine"), data.join("engine/table"), data.join("nicekv-format"), outside];
    let modes = paths.map(|path| mode(&path));
    assert_eq!(modes, ["700", "700", "600", "600", "644"]);

    // A directory that is refused keeps its modes.
    open(&data, 0o755);
    let other = Expected { cluster_id: Some(8), ..EXPECTED };
    assert!(matches!(DataDirectory::open(&files, &data, other), Err(StoreError::OtherCluster { .. })));
    assert_eq!(mode(&data), "755");
}

#[test]
fn file_in_place_of_a_directory_is_an_error() {
    let scratch = tempfile::tempdir().unwrap();
    let file = scratch.path().join("file");
    fs::write(&file, "in the way").unwrap();
    assert!(
        RealFiles.create_directory(&file).is_err()
            && RealFiles.create_directory(&file.join("below")).is_err()
    );
    let deep = scratch.path().join("a/b/c");
    RealFiles.create_directory(&deep).unwrap();
    RealFiles.create_directory(&deep).unwrap();
    assert!(deep.is_dir());
}

#[test]
fn volatile_engine_refuses_durable_data() {
    let scratch = tempfile::tempdir().unwrap();
    let (data, files) = (scratch.path().join("data"), Arc::new(RealFiles) as Arc<dyn Files>);
    DataDirectory::refuse_data(&RealFiles, &data).unwrap();
    drop(DataDirectory::open(&files, &data, EXPECTED).unwrap());
    let refused = DataDirectory::refuse_data(&RealFiles, &data).unwrap_err();
    assert!(matches!(refused, StoreError::HoldsData { .. }), "{refused}");
    assert!(refused.to_string().contains("leave out --engine memory"), "{refused}");
}

/// The work of the traced process: it opens a data directory two levels deep, writes a log of a few
/// segments with syncs by another thread, and trims it.
fn work(directory: &Path) {
    let files: Arc<dyn Files> = Arc::new(RealFiles);
    let data = directory.join("outer/data");
    let _held = DataDirectory::open(&files, &data, EXPECTED).unwrap();
    let identity = LogIdentity { cluster_id: 7, storage_id: 9, node_id: 1 };
    let options = LogOptions { segment_bytes_max: 400, ..LogOptions::default() };
    let (mut log, _) = Log::open(files, &data.join("log"), identity, options, |_, _| {}).unwrap();
    let (notify, notified) = channel();
    let told = Box::new(move |synced| notify.send(synced).unwrap());
    let commit = GroupCommit::start(log.sync_handle(), told).unwrap();
    for _ in 0..8 {
        let position = log.append(&[b'x'; 150]).unwrap();
        log.write().unwrap();
        commit.request(position);
        assert!(notified.recv().unwrap().unwrap() >= position);
        // A mark in the trace: from here on the record is reported durable.
        let _ = fs::metadata(directory.join(format!("forced-{position}")));
    }
    log.trim(log.last()).unwrap();
}

/// A system call of the traced process, and how it ended.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Call {
    name: String,
    /// The path of the descriptor, or the last path among the arguments.
    path: PathBuf,
}

/// Calls in the order in which they *returned*: a call that has not returned has not taken effect.
fn calls(trace: &str) -> Vec<Call> {
    let mut unfinished: Vec<(String, String)> = Vec::new();
    let mut calls = Vec::new();
    for line in trace.lines() {
        let (thread, rest) = line.split_once(' ').unwrap();
        let rest = rest.trim_start();
        let whole = if let Some(begun) = rest.strip_suffix(" <unfinished ...>") {
            unfinished.push((thread.to_owned(), begun.to_owned()));
            continue;
        } else if let Some((_, end)) =
            rest.strip_prefix("<... ").and_then(|rest| rest.split_once(" resumed>"))
        {
            let index = unfinished.iter().position(|(of, _)| of == thread).unwrap();
            unfinished.remove(index).1 + end
        } else {
            rest.to_owned()
        };
        calls.extend(call(&whole));
    }
    calls
}

/// Parses a line such as `fdatasync(7</tmp/x/log/1>) = 0`, `openat(AT_FDCWD</tmp>, "/tmp/x/log", …)
/// = 8</tmp/x/log>`, `rename("a", "b") = 0`.
fn call(line: &str) -> Option<Call> {
    let (name, rest) = line.split_once('(')?;
    let (arguments, result) = rest.rsplit_once(" = ")?;
    let failed = result.starts_with('-');
    let quoted = arguments.split('"').skip(1).step_by(2).last();
    let described =
        arguments.split_once('<').and_then(|(_, rest)| rest.split_once('>')).map(|(path, _)| path);
    // Written bytes are quoted, too.
    let path = if name == "pwrite64" { described } else { quoted.or(described) }?;
    // Failed calls matter only as marks.
    (!failed || path.contains("forced-")).then(|| Call { name: name.to_owned(), path: path.into() })
}

#[test]
fn system_calls_of_the_file_layer() {
    if let Some(directory) = std::env::var_os(TRACED) {
        return work(Path::new(&directory));
    }
    let scratch = tempfile::tempdir().unwrap();
    let (trace, root) = (scratch.path().join("trace"), scratch.path().join("root"));
    fs::create_dir(&root).unwrap();
    let strace = Command::new("strace")
        .args(["-f", "-y", "-o"])
        .arg(&trace)
        .args([
            "-e",
            "trace=openat,mkdir,mkdirat,pwrite64,ftruncate,fdatasync,fsync,rename,unlink,unlinkat,statx",
        ])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "real_files::system_calls_of_the_file_layer", "--test-threads=1"])
        .env(TRACED, &root)
        .output();
    let Ok(output) = strace else {
        nicekv_testkit::needs(&["strace"], "system_calls_of_the_file_layer");
        return;
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let ours = |call: &Call| call.path.starts_with(&root);
    let calls: Vec<Call> = calls(&fs::read_to_string(&trace).unwrap()).into_iter().filter(ours).collect();
    let made = |name: &str, path: PathBuf| Call { name: name.into(), path };
    let at = |call: &Call, from: usize| {
        let found = calls[from..].iter().position(|made| made == call);
        from + found.unwrap_or_else(|| panic!("no {call:?} after {:?} in {calls:#?}", &calls[..from]))
    };

    // A directory must be durable in its parent before anything is put into it.
    let data = root.join("outer/data");
    let mut done = 0;
    for directory in [root.join("outer"), data.clone()] {
        done = at(&made("mkdir", directory.clone()), done);
        done = at(&made("fsync", directory.parent().unwrap().into()), done);
    }
    // The format file is synced before it is renamed over the old one; then the directory is
    // synced.
    let new = data.join("nicekv-format.new");
    for call in
        [made("pwrite64", new.clone()), made("fdatasync", new), made("rename", data.join("nicekv-format"))]
    {
        done = at(&call, done) + 1;
    }
    at(&made("fsync", data.clone()), done);
    check_log(&calls, &data.join("log"));
}

/// Nothing is reported durable before its bytes, and the name of the segment with them, are
/// durable.
fn check_log(calls: &[Call], log: &Path) {
    let (mut unforced, mut unnamed, mut names) = (Vec::new(), Vec::new(), Vec::new());
    let (mut headers, mut marks, mut removed) = (HashSet::new(), 0, 0);
    for Call { name, path } in calls {
        let in_log = path.parent() == Some(log);
        match name.as_str() {
            "openat" if in_log && !names.contains(path) => {
                names.push(path.clone());
                unnamed.push(path.clone());
            }
            // The header is written first; it is synced together with the segment's first record.
            "pwrite64" if in_log && headers.insert(path.clone()) => {}
            "pwrite64" if in_log => unforced.push(path.clone()),
            "fdatasync" => unforced.retain(|written| written != path),
            "fsync" if path == log => unnamed.clear(),
            "unlink" | "unlinkat" if in_log => {
                removed += 1;
                unnamed.push(path.clone());
            }
            "statx" if path.to_string_lossy().contains("forced-") => {
                marks += 1;
                assert_eq!((&unforced, &unnamed), (&vec![], &vec![]), "at {path:?}, in {calls:#?}");
            }
            _ => {}
        }
    }
    assert!(names.len() > 2 && removed > 1, "the log had {} segments and lost {removed}", names.len());
    assert_eq!(marks, 8);
    assert_eq!(unnamed, Vec::<PathBuf>::new(), "removed segments would come back after a power loss");
}
