//! Random vaults and random edits.

use std::collections::BTreeMap;

use testkit::Rng;

use super::{everything, options, put};
use crate::{Change, Options, Vault};

const FOLDERS: [&str; 4] = ["", "f/", "f/g/", "Ünï/"];
const NAMES: [&str; 9] = ["a", "b", "B", "index", "README", "c d", "tags", "größe", "e.png"];

fn path(rng: &mut Rng) -> String {
    match rng.below(8) {
        0 => format!("{}p{}.png", rng.pick(&FOLDERS), rng.below(3)),
        _ => format!("{}{}.md", rng.pick(&FOLDERS), rng.pick(&NAMES)),
    }
}

/// Returns a random name of a note or file.
fn target(rng: &mut Rng) -> String {
    let path = path(rng);
    let short = path.strip_suffix(".md").unwrap_or(&path).to_owned();
    match rng.below(5) {
        0 => short.rsplit('/').next().unwrap_or_default().to_owned(),
        1 => format!("Title {}", rng.below(3)),
        2 => format!("alias{}", rng.below(3)),
        3 => "f".to_owned(),
        _ => short,
    }
}

fn text(rng: &mut Rng) -> String {
    let mut text = String::new();
    if rng.chance(0.6) {
        text.push_str("---\n");
        for line in [
            "publish: true\n",
            "publish: false\n",
            "title: Title 1\n",
            "aliases: [alias1, alias2]\n",
            "tags: [t1]\n",
            "date: 2024-01-02\n",
            "broken: [\n",
        ] {
            if rng.chance(if line.starts_with("broken") { 0.03 } else { 0.25 }) {
                text.push_str(line);
            }
        }
        text.push_str("---\n");
    }
    for _ in 0..rng.below(8) {
        let target = target(rng);
        text.push_str(&match rng.below(9) {
            0 => format!("# Title {}\n\n", rng.below(3)),
            1 => format!("## Part {} [[{target}]]\n\n", rng.below(3)),
            2 => format!("[[{target}]] [[{target}#part-1|label]]\n"),
            3 => format!("![[{target}]]\n\n"),
            4 => format!("![[{target}#Part 1]] ![x]({})\n\n", target.replace(' ', "%20")),
            5 => format!(
                "[t](../{}.md#part-1) [t]({}.md)\n",
                target.replace(' ', "%20"),
                target.replace(' ', "%20")
            ),
            6 => format!("words #t{} ^b{}\n\n", rng.below(3), rng.below(2)),
            7 => "%% hidden %%\n".to_owned(),
            _ => format!("![[p{}.png|10]]\n", rng.below(3)),
        });
    }
    text
}

fn random_options(rng: &mut Rng) -> Options {
    Options {
        publish: [&[][..], &["**"], &["f/**"]][rng.index(3)].iter().map(|glob| glob.to_string()).collect(),
        base_url: rng.chance(0.5).then(|| "https://example.org".to_owned()),
        ..options()
    }
}

fn assert_same(a: &Vault, b: &Vault, what: &str) {
    assert_eq!(a.addresses(), b.addresses(), "{what}");
    for url in a.addresses() {
        assert_eq!(a.page(url), b.page(url), "{what}: {url}");
    }
    assert_eq!(a.warnings(), b.warnings(), "{what}");
    for asked in ["/A", "/b", "/f", "/F/G", "/f/readme", "/Index", "/tags", "/p1.PNG"] {
        assert_eq!(format!("{:?}", a.find(asked)), format!("{:?}", b.find(asked)), "{what}: {asked}");
    }
}

#[test]
fn a_vault_that_came_about_by_edits_equals_one_built_from_nothing() {
    let _limit = testkit::limit(300);
    testkit::for_each_seed(60, |seed| {
        let mut rng = Rng::new(seed);
        let empty = Vault::new(random_options(&mut rng)).expect("options");
        let mut files = BTreeMap::new();
        let mut vault = empty.clone();
        for step in 0..12 {
            let changes: Vec<Change> = (0..=rng.below(4))
                .map(|_| {
                    if rng.one_in(3) {
                        let known: Vec<&String> = files.keys().collect();
                        let path =
                            if known.is_empty() { path(&mut rng) } else { rng.pick(&known).to_string() };
                        Change::Remove(path)
                    } else {
                        let path = path(&mut rng);
                        if rng.one_in(8) && crate::is_note(&path) {
                            Change::Withhold(path)
                        } else {
                            put(&path, text(&mut rng))
                        }
                    }
                })
                .collect();
            for change in &changes {
                match change {
                    Change::Put(file) => drop(files.insert(file.path.clone(), change.clone())),
                    Change::Withhold(path) => drop(files.insert(path.clone(), change.clone())),
                    Change::Remove(path) => drop(files.remove(path)),
                    Change::PutKnown(_) => unreachable!("files only"),
                }
            }
            let before = everything(&vault);
            let next = vault.apply(changes.clone());
            assert_eq!(everything(&vault), before, "a vault never changes (S1)");
            vault = next;
            let fresh = empty.apply(files.values().cloned());
            assert_same(&vault, &fresh, &format!("seed {seed}, step {step}: {changes:?}"));
        }
        let reversed = empty.apply(files.values().rev().cloned());
        assert_same(&vault, &reversed, "order of files");
    });
}

/// Tests A1. Every word of the private notes is unique, so a search of all pages finds any leak.
#[test]
fn private_notes_are_nowhere_in_what_readers_get() {
    let _limit = testkit::limit(300);
    testkit::for_each_seed(60, |seed| {
        let mut rng = Rng::new(seed);
        let mut secrets = Vec::new();
        let mut secret = |rng: &mut Rng, kind: &str| {
            let word = format!("zq{kind}{}qz", rng.word(8));
            secrets.push(word.clone());
            word
        };
        let mut changes = Vec::new();
        let mut names = Vec::new();
        let mut private_texts = Vec::new();
        for _ in 0..4 {
            let (folder, file) = (secret(&mut rng, "folder"), secret(&mut rng, "file"));
            let (title, alias) = (secret(&mut rng, "title"), secret(&mut rng, "alias"));
            let (tag, body, head) =
                (secret(&mut rng, "tag"), secret(&mut rng, "body"), secret(&mut rng, "head"));
            let front = ["publish: false", "draft: true", "publish: [", "publish: nein"][rng.index(4)];
            let path = if rng.chance(0.5) { format!("{folder}/{file}.md") } else { format!("{file}.md") };
            let text = format!(
                "---\n{front}\ntitle: {title}\naliases: [{alias}]\ntags: [{tag}]\ndescription: {body}\n---\n# {title}\n\n{body} #{tag} [[public0]] ![[public1]] ![[own.png]]\n\n## {head}\n\n{body}\n"
            );
            private_texts.push((path.clone(), text.clone()));
            changes.push(put(&path, &text));
            names.extend([
                path.trim_end_matches(".md").to_owned(),
                path,
                file,
                title.clone(),
                title.to_uppercase(),
                alias,
            ]);
        }
        changes.push(put("own.png", secret(&mut rng, "picture")));
        for i in 0..4 {
            let mut text = format!("# Public {i}\n\n");
            for _ in 0..6 {
                // The name has at most one ending, since a name with two would be another one.
                let name = rng.pick(&names).trim_end_matches(".md");
                text.push_str(&match rng.below(8) {
                    0 => format!("[[{name}]]\n\n"),
                    1 => format!("see [[{name}#Part|this]]\n\n"),
                    2 => format!("![[{name}]]\n\n"),
                    3 => format!("## On [[{name}]]\n\n"),
                    4 => format!("[that]({name}.md \"{name}\") ![picture {name}]({name}.md)\n\n"),
                    5 => format!("[[{name}|more on {name}]]\n\n"),
                    6 => format!("%% {name} %% ![[public{}]]\n\n", rng.below(4)),
                    _ => format!("> [!note] [[{name}]]\n> [[public{}]]\n\n", rng.below(4)),
                });
            }
            let front = if rng.chance(0.3) { "---\ntags: [open]\n---\n" } else { "" };
            let lead =
                if rng.chance(0.3) { format!("# About [[{}]]\n\n", rng.pick(&names)) } else { String::new() };
            changes.push(put(&format!("public{i}.md"), format!("{front}{lead}{text}")));
        }
        rng.shuffle(&mut changes);
        let empty = Vault::new(options()).expect("options");
        let mut vault = empty.clone();
        for chunk in changes.chunks(3) {
            vault = vault.apply(chunk.to_vec());
        }
        // A file that no public note shows is private too. One note was public for a while and is private again.
        let (path, text) = rng.pick(&private_texts).clone();
        let public_once =
            text.replace("publish: false", "publish: true").replace("draft: true", "publish: true");
        vault = vault.apply([put(&path, public_once)]).apply([put(&path, text)]);
        assert_eq!(vault.cards().count(), 4, "seed {seed}");
        for (url, bytes) in everything(&vault) {
            let text = format!("{url}\n{}", String::from_utf8_lossy(&bytes)).to_lowercase();
            for secret in &secrets {
                assert!(!text.contains(&secret.to_lowercase()), "seed {seed}: {secret} at {url}:\n{text}");
            }
        }
        for card in vault.cards() {
            let told = format!("{card:?} {:?}", vault.text(&card.path)).to_lowercase();
            assert!(
                secrets.iter().all(|secret| !told.contains(&secret.to_lowercase())),
                "seed {seed}: {told}"
            );
        }
    });
}

#[test]
fn what_a_change_does_not_touch_is_the_same_page_in_memory() {
    let vault = super::vault(&[
        ("a.md", "[[b]]"),
        ("b.md", "# B"),
        ("c.md", "![[b]]"),
        ("d.md", "# D"),
        ("e/f.md", "x"),
    ]);
    let next = vault.apply([put("b.md", "# B\n\nmore")]);
    let same =
        |url: &str| std::sync::Arc::ptr_eq(vault.page(url).expect("before"), next.page(url).expect("after"));
    assert!(!same("/b") && !same("/c"), "the note and who shows it");
    for url in ["/a", "/d", "/e/f", "/e/", "/tags/", "/robots.txt"] {
        assert!(same(url), "{url}");
    }
    let renamed = next.apply([put("b.md", "# New\n\nmore")]);
    let same = |url: &str| {
        std::sync::Arc::ptr_eq(next.page(url).expect("before"), renamed.page(url).expect("after"))
    };
    assert!(!same("/feed.xml") && !same("/all-notes") && same("/d") && same("/e/f") && same("/a"));
}

#[test]
fn encodings_have_their_own_strong_tags_and_unpack_to_the_page() {
    use std::io::Read;
    let vault = super::vault(&[("a.md", &"text ".repeat(1000))]);
    for url in vault.addresses() {
        let page = vault.page(url).expect("a page");
        assert!(page.plain.etag.starts_with('"') && page.plain.etag.ends_with('"'));
        let Some(gzip) = &page.gzip else { continue };
        assert_ne!(gzip.etag, page.plain.etag, "{url}");
        let mut plain = Vec::new();
        flate2::read::GzDecoder::new(&gzip.bytes[..]).read_to_end(&mut plain).expect("gzip");
        assert_eq!(plain, page.plain.bytes, "{url}");
    }
    let style = vault.addresses().into_iter().find(|url| url.starts_with("/style.")).expect("a style sheet");
    assert!(vault.page(style).is_some_and(|page| page.cache_control.contains("immutable")));
    assert!(super::page(&vault, "/a").contains(style));
    assert_eq!(
        vault.page("/a").and_then(|page| page.last_modified.clone()).as_deref(),
        Some("Tue, 14 Nov 2023 22:13:20 GMT")
    );
}
