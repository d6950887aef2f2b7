//! The transcripts in `transcripts/`: runs of the protocol, message by message. A change of the
//! protocol shows as a change of these files; `NICEKV_TRANSCRIPTS=write cargo test -p nicekv-sim
//! --test transcripts` writes them anew.

use nicekv_sim::scenarios::stories::STORIES;
use std::path::Path;

#[test]
fn transcripts_match_the_files() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("transcripts");
    let writes = std::env::var_os("NICEKV_TRANSCRIPTS").is_some_and(|value| value == "write");
    for story in STORIES {
        let path = directory.join(format!("{}.txt", story.name));
        let told = story.tell();
        if writes {
            std::fs::create_dir_all(&directory).expect("the directory can be made");
            std::fs::write(&path, &told).expect("the transcript can be written");
        }
        let written = std::fs::read_to_string(&path).unwrap_or_default();
        let first = told.lines().zip(written.lines()).position(|(told, written)| told != written);
        assert!(
            told == written,
            "{} differs from what happens{}; NICEKV_TRANSCRIPTS=write writes it anew, then look at the difference",
            path.display(),
            first.map_or(String::new(), |line| format!(" from line {} on", line + 1)),
        );
    }
}
