//! Rules that the compiler does not check. Each failure names the file, the line and the remedy.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

use polynya_repo::{File, files, root};

/// The longest file, in lines. A longer one holds a second concept.
const LINES_MAX: usize = 700;

fn rust_files() -> Vec<File> {
    files().into_iter().filter(|file| file.has_extension("rs")).collect()
}

/// Fails with all findings at once, so that they can be fixed at once.
fn assert_none(findings: &[String], rule: &str) {
    assert!(findings.is_empty(), "{rule}:\n  {}", findings.join("\n  "));
}

/// Returns `path:line` for each line of code that contains `wanted`. Comment lines are ignored, since examples may contain it.
fn places(file: &File, wanted: &str) -> Vec<String> {
    let lines = file.text.lines().enumerate();
    let found = lines.filter(|(_, line)| line.contains(wanted) && !line.trim_start().starts_with("//"));
    found.map(|(i, _)| format!("{}:{}: {wanted}", file.path.display(), i + 1)).collect()
}

#[test]
fn no_file_outgrows_one_concept() {
    let too_long = |file: &File| {
        let lines = file.text.lines().count();
        (lines > LINES_MAX).then(|| format!("{}: {lines} lines", file.path.display()))
    };
    let found: Vec<_> = rust_files().iter().filter_map(too_long).collect();
    assert_none(&found, &format!("a Rust file has at most {LINES_MAX} lines; move its second concept out"));
}

#[test]
fn nothing_is_ignored_or_left_for_later() {
    // The words are split so that this file does not contain them.
    let forbidden = ["#[ign", "tod", "db", "unimplem"].iter().zip(["ore", "o!", "g!", "ented!"]);
    let forbidden: Vec<String> = forbidden.map(|(a, b)| format!("{a}{b}")).collect();
    let found: Vec<_> =
        rust_files().iter().flat_map(|file| forbidden.iter().flat_map(|word| places(file, word))).collect();
    assert_none(&found, "no ignored test and no stub; write it or leave it out");
}

/// A test that was compiled in another checkout read the files of that checkout, and failed when it was gone.
#[test]
fn no_test_asks_the_compiler_where_its_files_lie() {
    let found: Vec<_> = rust_files()
        .iter()
        .flat_map(|file| places(file, concat!("env!(\"CARGO_", "MANIFEST_DIR\")")))
        .collect();
    assert_none(&found, "checkouts may share a target directory; use testkit::package()");
}

/// Two branches each gave a new kind of lock the same free rank. Each was right by itself; together every step of the lake
/// panicked.
#[test]
fn each_kind_of_lock_has_a_rank_of_its_own() {
    let mut known: BTreeMap<String, String> = BTreeMap::new();
    let mut found = Vec::new();
    let is_code = |file: &&File| {
        file.path.components().all(|part| part.as_os_str() != "tests") && !file.path.ends_with("tests.rs")
    };
    for file in rust_files().iter().filter(is_code) {
        let code = file.text.split("mod tests {").next().unwrap_or_default();
        for rank in code.split("Rank::new(").skip(1) {
            let Some((number, name)) = rank.split_once(')').and_then(|(args, _)| args.split_once(", "))
            else {
                continue;
            };
            let other = known.entry(number.to_owned()).or_insert_with(|| name.to_owned());
            if number.parse::<u8>().is_ok() && other != name {
                found.push(format!("{}: {number} is {other} and {name}", file.path.display()));
            }
        }
    }
    assert!(known.len() > 30, "{known:?}");
    assert_none(&found, "a rank belongs to one kind of lock; give the new one another number");
}

#[test]
fn no_file_names_a_path_of_one_machine() {
    let mut paths: Vec<String> =
        ["tmp", "root", "work", "workspace"].map(|name| format!("/{name}/")).to_vec();
    for own in [Some(root()), std::env::home_dir()].into_iter().flatten() {
        // A short path, such as `/src`, is part of many legitimate paths.
        if own.components().count() > 2 {
            paths.push(format!("{}/", own.display()));
        }
    }
    let continues_a_path = |c: char| c.is_alphanumeric() || "._-*{}()$/~".contains(c);
    let mut found = Vec::new();
    for file in files() {
        for path in &paths {
            let at = file.text.match_indices(path.as_str()).map(|(at, _)| at);
            let own = at.filter(|at| !file.text[..*at].ends_with(continues_a_path));
            found.extend(own.map(|at| format!("{}:{}: {path}", file.path.display(), file.line_of(at))));
        }
    }
    assert_none(
        &found,
        "a path of one machine means nothing on another; use a relative one or a made-up one",
    );
}

/// The crate for comparisons, which builds SQLite among others, and the Python package, which maturin builds.
const NOT_BUILT: [&str; 2] = ["crates/compare", "crates/python"];

#[test]
fn all_crates_but_two_are_built_unasked() {
    let manifest = std::fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let list = |key: &str| -> BTreeSet<String> {
        let after = manifest.split_once(&format!("\n{key} = [")).map_or("", |(_, after)| after);
        let inside = after.split_once(']').map_or("", |(inside, _)| inside);
        inside.split('"').skip(1).step_by(2).map(str::to_owned).collect()
    };
    let named = list("members");
    assert!(named.contains("crates/*"), "{named:?}");
    let mut members: BTreeSet<String> = named.into_iter().filter(|member| member != "crates/*").collect();
    for entry in std::fs::read_dir(root().join("crates")).unwrap() {
        members.insert(format!("crates/{}", entry.unwrap().file_name().to_str().unwrap()));
    }
    for member in NOT_BUILT {
        assert!(members.remove(member), "{member}");
    }
    assert_eq!(
        list("default-members"),
        members,
        "default-members in Cargo.toml lists all members but {NOT_BUILT:?}"
    );
}

#[test]
fn commands_over_the_whole_workspace_exclude_these_two() {
    let is_script = |file: &File| {
        let path = &file.path;
        path.starts_with("scripts") || path.starts_with(".ci") || path.ends_with("Makefile")
    };
    let mut found = Vec::new();
    for file in files().iter().filter(|file| is_script(file)) {
        for (at, line) in file.text.lines().enumerate() {
            let excludes = NOT_BUILT
                .iter()
                .all(|member| line.contains(&member.replace("crates/", "--exclude polynya-")));
            if line.contains("--workspace") && !excludes {
                found.push(format!("{}:{}", file.path.display(), at + 1));
            }
        }
    }
    assert_none(&found, "add `--exclude polynya-compare --exclude polynya-python`: see Cargo.toml");
}

#[test]
fn a_package_of_several_programs_says_which_one_runs() {
    let all = files();
    let mut several = 0;
    let mut found = Vec::new();
    for manifest in all.iter().filter(|file| file.path.ends_with("Cargo.toml")) {
        let sources = manifest.path.with_file_name("src");
        let places = [sources.join("main.rs"), sources.join("bin")];
        let programs = all.iter().filter(|file| {
            file.path == places[0] || file.path.parent() == Some(&places[1]) && file.has_extension("rs")
        });
        if programs.count() > 1 {
            several += 1;
            if !manifest.text.contains("\ndefault-run = ") {
                found.push(manifest.path.display().to_string());
            }
        }
    }
    assert!(several > 0, "crates/compare has two");
    assert_none(&found, "say `default-run = …` under [package], or `cargo run -p` without --bin fails");
}

/// Code that can make a test hang: threads, and everything that starts them.
const CAN_HANG: [&str; 9] = [
    "thread::spawn(",
    "thread::scope(",
    "thread::Builder",
    "Engine::open(",
    "Database::open",
    "Server::start(",
    "Service::start(",
    "block_on(",
    "tokio::test",
];

#[test]
fn every_test_that_could_hang_has_a_time_limit() {
    let mut found = Vec::new();
    for file in rust_files() {
        let is_test = |line: &str| line.starts_with("#[test]") || line.starts_with("#[tokio::test");
        let lines: Vec<&str> = file.text.lines().collect();
        for (at, line) in lines.iter().enumerate().filter(|(_, line)| is_test(line.trim_start())) {
            let indent = line.len() - line.trim_start().len();
            let closing = format!("{}}}", " ".repeat(indent));
            let body: Vec<&str> = lines[at..].iter().copied().take_while(|line| *line != closing).collect();
            let body = body.join("\n");
            if CAN_HANG.iter().any(|part| body.contains(part)) && !body.contains("limit(") {
                found.push(format!("{}:{}", file.path.display(), at + 1));
            }
        }
        // Helpers may use such code if the tests or the helpers set a limit.
        let tests = test_part(&file);
        if CAN_HANG.iter().any(|part| tests.contains(part)) && !tests.contains("limit(") {
            found.push(format!("{}: its helpers", file.path.display()));
        }
    }
    assert_none(
        &found,
        "begin the test with `let _limit = testkit::limit(30);`, so that a hang prints all stacks",
    );
}

/// Returns the tests of a file with their helpers.
fn test_part(file: &File) -> &str {
    let has_tests = ["#[test]", "#[tokio::test"].iter().any(|mark| file.text.contains(mark));
    let is_all_tests =
        file.path.components().any(|part| part.as_os_str() == "tests") || file.path.ends_with("tests.rs");
    match (has_tests, is_all_tests) {
        (false, _) => "",
        (true, true) => &file.text,
        (true, false) => file.text.split_once("mod tests {").map_or("", |(_, tests)| tests),
    }
}

#[test]
fn every_link_in_the_documents_leads_somewhere() {
    let all = files();
    let known: BTreeSet<&Path> = all.iter().map(|file| file.path.as_path()).collect();
    let mut found = Vec::new();
    for file in all.iter().filter(|file| file.has_extension("md")) {
        for (line, target) in links(&file.text) {
            if let Some(problem) = broken(file, &target, &all, &known) {
                found.push(format!("{}:{line}: {target}: {problem}", file.path.display()));
            }
        }
    }
    assert_none(&found, "a link leads to a file of the repository, and to a heading that it has");
}

fn broken(file: &File, target: &str, all: &[File], known: &BTreeSet<&Path>) -> Option<&'static str> {
    let outside = ["http://", "https://", "mailto:"].iter().any(|scheme| target.starts_with(scheme));
    if outside || target.is_empty() {
        return None;
    }
    let (path, anchor) = target.split_once('#').map_or((target, None), |(path, anchor)| (path, Some(anchor)));
    let path = match path {
        "" => file.path.clone(),
        _ => normal(&file.path.parent().unwrap().join(path)),
    };
    let is_directory = known.iter().any(|known| known.starts_with(&path));
    if !known.contains(path.as_path()) && !is_directory && !root().join(&path).is_file() {
        return Some("there is no such file");
    }
    let anchor = anchor.filter(|_| path.extension().is_some_and(|extension| extension == "md"))?;
    let page = all.iter().find(|file| file.path == path)?;
    let headings =
        outside_code(&page.text).filter_map(|(_, line)| line.strip_prefix('#').map(slug)).collect::<Vec<_>>();
    (!headings.iter().any(|heading| heading == anchor)).then_some("there is no such heading")
}

/// Normalizes `a/../b` without touching the disk.
fn normal(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                out.pop();
            }
            Component::Normal(name) => out.push(name),
            _ => {}
        }
    }
    out
}

/// Returns the anchor of a heading, as links use it.
fn slug(heading: &str) -> String {
    let kept = |c: char| match c {
        ' ' => Some('-'),
        c if c.is_alphanumeric() || "-_".contains(c) => Some(c.to_ascii_lowercase()),
        _ => None,
    };
    heading.trim_start_matches('#').trim().chars().filter_map(kept).collect()
}

/// Returns the lines of a document with their numbers, without fenced code.
fn outside_code(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    text.lines().enumerate().filter_map(move |(i, line)| {
        let is_fence = line.trim_start().starts_with("```");
        fenced ^= is_fence;
        (!fenced && !is_fence).then_some((i + 1, line))
    })
}

/// Returns line and target of each `[text](target)` and `[name]: target`.
fn links(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (number, line) in outside_code(text) {
        // Every second piece is inside backticks and is dropped.
        let prose: String = line.split('`').step_by(2).collect::<Vec<_>>().join("``");
        for part in prose.split("](").skip(1) {
            let target = part.split([')', ' ']).next().unwrap_or_default();
            found.push((number, target.trim_matches(['<', '>']).to_owned()));
        }
        if let Some((name, target)) = prose.split_once("]: ")
            && name.starts_with('[')
        {
            found.push((number, target.trim().to_owned()));
        }
    }
    found
}

#[test]
fn links_are_found_in_prose_and_not_in_code() {
    let text = "See [a](b.md#c) and `[x](y)`.\n```\n[no](no)\n```\n[ref]: ../d.md\n";
    assert_eq!(links(text), [(1, "b.md#c".to_owned()), (5, "../d.md".to_owned())]);
    assert_eq!(slug("## What it is, and `why`"), "what-it-is-and-why");
    assert_eq!(normal(Path::new("docs/../crates/./x.md")), Path::new("crates/x.md"));
}
