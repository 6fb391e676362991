use bytes::Bytes;

use super::{article, everything, options, page, rendered, vault, vault_with};
use crate::{Change, File, Hit, NOTE_BYTES_MAX, Note, Options, Vault, is_valid};

/// A script that would run if it came out as markup. The tests look for characters that only markup has.
const SCRIPT: &str = "<script>alert(1)</script>";
const BREAK_OUT: &str = "\"><img src=x onerror=alert(1)>'";

fn assert_harmless(text: &str, of: &str) {
    for mark in ["<script", "<img src=x", "onerror=alert(1)>", "\"javascript:", "\"data:text", "\"vbscript:"]
    {
        assert!(!text.to_lowercase().contains(mark), "{mark} in what came of {of}: {text}");
    }
}

#[test]
fn nothing_that_a_note_says_becomes_a_script() {
    for bad in [SCRIPT, BREAK_OUT, "`<script>`", "&lt;script&gt;<script>", "]]><script>", "</title><script>"]
    {
        let yaml = bad.replace('\'', "''");
        let files = [
            (
                "a.md",
                format!(
                    "---\ntitle: '{yaml}'\ndescription: '{yaml}'\ntags: ['{yaml}']\naliases: ['{yaml}']\n---\n{bad}\n\n# {bad}\n\n## {bad}\n\n### {bad} `{bad}`\n\n## end\n\n{bad}"
                ),
            ),
            (
                "b.md",
                format!(
                    "# {bad}\n\n[[a|{bad}]] ![{bad}](p.png \"{bad}\") [{bad}](a.md '{bad}') ![[p.png|{bad}]] [[{bad}]] ![[{bad}]]\n\n> [!note] {bad}\n> {bad}\n\n```{bad}\n{bad}\n```\n\n| {bad} |\n|---|\n| {bad} |\n\n[^{bad}] ${bad}$ #{bad} ^{bad}\n\n[^x]: {bad}\n\n[^x]"
                ),
            ),
            ("p.png", String::new()),
        ];
        let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (*path, text.as_str())).collect();
        for (url, bytes) in everything(&vault(&files)) {
            assert_harmless(&String::from_utf8_lossy(&bytes), &format!("{bad} at {url}"));
        }
    }
}

#[test]
fn file_and_folder_names_are_not_markup() {
    let vault = vault(&[
        ("x<script>alert(1)/a\"><script>.md", "[[b&amp;'<i>]]"),
        ("x<script>alert(1)/b&amp;'<i>.md", ""),
    ]);
    for (url, bytes) in everything(&vault) {
        assert_harmless(&String::from_utf8_lossy(&bytes), &url);
        assert!(!url.contains(['<', '>', '"', '\'']), "{url}");
    }
    assert_eq!(vault.cards().count(), 2);
}

#[test]
fn addresses_that_would_act_are_text() {
    for url in [
        "javascript:alert(1)",
        "JaVaScRiPt:alert(1)",
        "java&#10;script:alert(1)",
        "&#1;javascript:alert(1)",
        "javascript&colon;alert(1)",
        "vbscript:x",
        "data:text/html;base64,PHNjcmlwdD4=",
        "file:///etc/passwd",
        "javascript://x.org/%0aalert(1)",
    ] {
        for text in [
            format!("[t]({url})"),
            format!("[t](<{url}>)"),
            format!("![t]({url})"),
            format!("[[{url}]]"),
            format!("[[{url}|t]]"),
            format!("![[{url}]]"),
            format!("<{url}>"),
            format!("[t]\n\n[t]: {url}"),
        ] {
            let html = rendered(&text).to_lowercase();
            assert!(!html.contains("href=\"javascript") && !html.contains("href=\"java\n"), "{text}: {html}");
            assert!(!html.contains("<a ") && !html.contains("<img"), "{text}: {html}");
        }
    }
}

#[test]
fn no_page_may_run_scripts_and_files_may_do_nothing() {
    let vault = vault(&[
        ("a.md", "![[x.svg]] [[page.html]]"),
        ("x.svg", "<svg onload=alert(1)/>"),
        ("page.html", SCRIPT),
    ]);
    for url in vault.addresses() {
        let policy = vault.page(url).map(|page| page.security_policy).unwrap_or_default();
        assert!(policy.contains("default-src 'none'") && !policy.contains("script-src"), "{url}: {policy}");
    }
    assert!(vault.page("/x.svg").is_some_and(|page| page.security_policy.contains("sandbox")));
    assert!(vault.page("/page.html").is_none(), "HTML is not a file that a site has");
}

#[test]
fn front_matter_that_is_a_bomb_costs_little_and_stays_private() {
    let _limit = testkit::limit(60);
    let laughs: String = (1..40).map(|i| format!("a{i}: &a{i} [*a{}, *a{}]\n", i - 1, i - 1)).collect();
    for yaml in [
        format!("a0: &a0 [lol]\n{laughs}publish: true"),
        format!("publish: true\na: {}", "[".repeat(60_000)),
        format!("publish: true\na: {}", "{a: ".repeat(10_000)),
        format!("publish: true\n{}", (0..10_000).map(|i| format!("k{i}: v\n")).collect::<String>()),
        format!("publish: true\na: \"{}\"", "x".repeat(200_000)),
        format!("publish: true\n{}", "- ".repeat(30_000)),
        format!("publish: true\na: {}x", "? ".repeat(30_000)),
        format!("publish: true\n{}", (0..300).map(|i| format!("{}k:\n", " ".repeat(i))).collect::<String>()),
        "publish: true\n--- {a: b}".to_owned(),
        "publish: true\n\u{0}".to_owned(),
    ] {
        let note = Note::parse("a.md", format!("---\n{yaml}\n---\ntext").as_bytes());
        assert_eq!(note.publish(), Some(false), "{:.60}: {:?}", yaml, note.warnings());
        assert!(!note.warnings().is_empty());
    }
}

#[test]
fn nesting_without_end_does_not_exhaust_the_stack() {
    let _limit = testkit::limit(120);
    for unit in [
        "> ",
        "- ",
        "*",
        "[",
        "![[",
        "**a ",
        "> [!note] ",
        "[[",
        "==",
        "`",
        "$",
        "<b>",
        "[^1]",
        "|",
        "# ",
        "1. ",
        "~~",
        "%%",
    ] {
        let text = unit.repeat(3_000);
        let vault = vault(&[("a.md", &text), ("b.md", &format!("{text}\n\nend"))]);
        assert_eq!(vault.cards().count(), 2, "{unit:?}");
    }
    let deep: String = (0..500).map(|depth| format!("{}- a\n", "  ".repeat(depth))).collect();
    assert!(rendered(&deep).contains("<li>"));
}

#[test]
fn bytes_of_every_kind_are_taken_without_panic() {
    let _limit = testkit::limit(120);
    testkit::for_each_seed(200, |seed| {
        let mut rng = testkit::Rng::new(seed);
        let parts = [
            "---\n",
            "publish: true\n",
            "[[",
            "]]",
            "|",
            "#",
            "^a",
            "![[",
            "%%",
            "> [!x]-",
            "\n\n",
            "```",
            "==",
            "[^1]",
            ":",
            "\u{0}",
            "é",
            "\u{202e}",
            "- [ ] ",
            "</h1>\n",
            "$$",
            "a",
            "\r\n",
            "\t",
            "\\",
        ];
        let mut bytes = Vec::new();
        for _ in 0..rng.below(60) {
            if rng.one_in(8) { bytes.extend(rng.bytes(3)) } else { bytes.extend(rng.pick(&parts).as_bytes()) }
        }
        let empty = Vault::new(options()).expect("options");
        let vault =
            empty.apply([Change::Put(File { path: "a.md".to_owned(), bytes: bytes.into(), modified: None })]);
        assert_eq!(vault.notes().count(), 1);
    });
}

#[test]
fn huge_binary_and_misnamed_files_stay_out() {
    let huge = "x".repeat(NOTE_BYTES_MAX + 1);
    let empty = Vault::new(options()).expect("options");
    let put = |path: &str, bytes: &[u8]| {
        Change::Put(File { path: path.to_owned(), bytes: Bytes::copy_from_slice(bytes), modified: None })
    };
    let vault = empty.apply([
        put("huge.md", huge.as_bytes()),
        put("binary.md", &[0xff, 0xfe, 0, 1]),
        put("a.exe", b"MZ"),
        put("../up.md", b"x"),
        put(".obsidian/x.md", b"x"),
        put("/abs.md", b"x"),
        put("a//b.md", b"x"),
        put("a\\b.md", b"x"),
        put("line\nbreak.md", b"x"),
        put(&format!("{}.md", "a/".repeat(100)), b"x"),
        put("bom.md", "\u{feff}---\ntitle: With mark\n---\n".as_bytes()),
    ]);
    assert_eq!(vault.notes().count(), 3, "only names that can be are kept");
    assert_eq!(vault.cards().map(|card| card.title.as_str()).collect::<Vec<_>>(), ["With mark"]);
    assert_eq!(vault.warnings().len(), 2, "{:?}", vault.warnings());
    assert!(is_valid("a b/c.md") && !is_valid("a/../b.md") && !is_valid(""));
}

#[test]
fn feed_and_sitemap_are_well_formed_whatever_notes_say() {
    let vault = vault(&[(
        "a&b <c>.md",
        "---\ntitle: \"T & <U> \\u0001 ]]>\"\ndate: 2024-05-01\ntags: [x]\n---\nLead & <text> \u{1}",
    )]);
    let feed = page(&vault, "/feed.xml");
    assert!(feed.contains("<title>T &amp; &lt;U&gt;  ]]&gt;</title>"), "{feed}");
    assert!(feed.contains("<link href=\"https://example.org/a%26b%20%3Cc%3E\"/>"), "{feed}");
    assert!(feed.contains("<published>2024-05-01T00:00:00Z</published>"), "{feed}");
    assert!(page(&vault, "/sitemap.xml").contains("<loc>https://example.org/a%26b%20%3Cc%3E</loc>"));
    assert!(page(&vault, "/robots.txt").contains("Sitemap: https://example.org/sitemap.xml"));
}

#[test]
fn options_that_cannot_be_are_refused_with_a_hint() {
    for bad in [
        Options { publish: vec!["a[".to_owned()], ..Options::default() },
        Options { base_url: Some("example.org".to_owned()), ..Options::default() },
        Options { base_url: Some("https://x/\"><script>".to_owned()), ..Options::default() },
    ] {
        assert!(Vault::new(bad).is_err());
    }
}

#[test]
fn only_what_says_so_or_fits_a_pattern_is_published() {
    let blog = Options { publish: vec!["blog/**".to_owned(), "*.md".to_owned()], ..options() };
    let files = [
        ("a.md", ""),
        ("x/b.md", ""),
        ("x/c.md", "---\npublish: true\n---"),
        ("blog/2024/d.md", ""),
        ("blog/e.md", "---\npublish: false\n---"),
    ];
    let paths = |vault: &Vault| vault.cards().map(|card| card.path.to_string()).collect::<Vec<_>>();
    assert_eq!(paths(&vault_with(blog, &files)), ["a.md", "blog/2024/d.md", "x/c.md"]);
    let none = Options { publish: Vec::new(), ..options() };
    assert_eq!(paths(&vault_with(none, &files)), ["x/c.md"], "private is the default");
}

#[test]
fn words_and_titles_of_the_site_are_escaped() {
    let named = Options {
        title: SCRIPT.to_owned(),
        description: SCRIPT.to_owned(),
        language: BREAK_OUT.to_owned(),
        search: Some(BREAK_OUT.to_owned()),
        ..options()
    };
    for (url, bytes) in everything(&vault_with(named, &[("a.md", "text")])) {
        assert_harmless(&String::from_utf8_lossy(&bytes), &url);
    }
    assert!(article(&vault(&[("a.md", "x")]), "/a").contains("<p>x</p>"));
}

#[test]
fn a_search_shows_no_note_that_has_no_page_and_no_markup_of_its_words() {
    let vault = vault(&[("a <b>.md", "text"), ("mine.md", "---\npublish: false\n---\n# Mine")]);
    let hit = |path: &str| Hit { path: path.to_owned(), snippet: "a <mark>word</mark>".to_owned() };
    let text = |page: crate::Page| String::from_utf8(page.plain.bytes.to_vec()).expect("UTF-8");
    let found = text(vault.search_page(BREAK_OUT, 2, &[hit("mine.md"), hit("a <b>.md"), hit("none.md")]));
    assert_harmless(&found, "words");
    assert!(found.contains("<a href=\"/a%20%3Cb%3E\">a &lt;b&gt;</a><p>a <mark>word</mark></p>"), "{found}");
    assert!(!found.contains("Mine") && !found.contains("mine"), "{found}");
    assert!(text(vault.search_page("x", 1, &[hit("mine.md")])).contains("Nothing was found."));
    assert_harmless(&text(vault.notice_page(SCRIPT, BREAK_OUT)), "a notice");
}

/// Each of many equal headings counted from one, so a note of 40 KB took 20 seconds. A link to each heading was as
/// slow, in another way.
#[test]
fn what_a_note_costs_grows_with_its_length() {
    let _limit = testkit::limit(60);
    let many = 60_000;
    let numbered = |line: &dyn Fn(usize) -> String| (0..many).map(line).collect::<String>();
    for text in [
        "# h\n".repeat(many),
        "> # h\n".repeat(many),
        numbered(&|at| format!("# h\n\n# h-{at}\n")),
        numbered(&|at| format!("# h{at}\n[[#h{at}]]\n")),
        numbered(&|at| format!("a [[#^b{at}]] ^b{at}\n\n")),
        numbered(&|at| format!("[[none{at}]] ")),
        // Each of these open brackets could search for its end.
        "[[".repeat(many),
        "[[a|".repeat(many),
        "[[a|b\n".repeat(many),
        "[[a [b".repeat(many),
        "![[a\\]".repeat(many),
        "[x [[a]] ".repeat(many),
        "[[a&amp;b]] ".repeat(many),
        format!("{} {}", "> ".repeat(1_000), "[[a]] ".repeat(many)),
        "> [[a\n> b]] ".repeat(many),
        // A long text is written again and again.
        format!("[r]: https://example.org \"[[{}]]\"\n\n{}", "x".repeat(many), "[r] ".repeat(many)),
        format!("[[{}]] {}", "x".repeat(many), "&#x2045;0&#x2046;".repeat(many)),
        // All runs of backticks have different lengths.
        format!("%% [[ {}", (1..1_500).map(|run| format!("{} ", "`".repeat(run))).collect::<String>()),
    ] {
        let vault = vault(&[("a.md", &text)]);
        assert!(vault.page("/a").is_some());
        assert_eq!(vault.apply([super::put("a.md", format!("{text}x"))]).cards().count(), 1);
    }
}

#[test]
fn headings_of_one_name_have_ids_of_their_own_and_contents_have_an_end() {
    let text = format!("{}# h-2\n# h\n# x\n# X\n{}", "# h\n".repeat(3), "## y\n".repeat(1_000));
    let note = Note::parse("a.md", text.as_bytes());
    let ids: Vec<&str> = note.body.headings.iter().map(|heading| heading.id.as_str()).collect();
    assert_eq!(ids[..8], ["h", "h-1", "h-2", "h-2-1", "h-3", "x", "x-1", "y"]);
    assert_eq!(ids.iter().collect::<std::collections::BTreeSet<_>>().len(), ids.len());
    let vault = vault(&[("a.md", &text)]);
    let page = page(&vault, "/a");
    assert_eq!(page.matches("<a href=\"#y").count(), 2 * (500 - 6), "beside the text and below the title");
}
