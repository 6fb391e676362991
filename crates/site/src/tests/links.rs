use super::{article, is_missing, moved, page, put, rendered, vault};
use crate::{Change, PageLookup};

/// Returns the article of `from` in a vault with it and other files.
fn linked(from: &str, text: &str, others: &[(&str, &str)]) -> String {
    let mut files = others.to_vec();
    files.push((from, text));
    let vault = vault(&files);
    article(&vault, &format!("/{}", from.trim_end_matches(".md")))
}

#[test]
fn every_form_of_a_link_finds_its_note() {
    let others = [
        ("b.md", "# Title\n\n## My Heading\n\nend ^block"),
        ("x/c d.md", "---\naliases: [Other Name]\n---\n"),
        ("x/index.md", "i"),
    ];
    for (link, href, text) in [
        ("[[b]]", "/b", "b"),
        ("[[B]]", "/b", "B"),
        ("[[b.md]]", "/b", "b.md"),
        ("[[b|shown]]", "/b", "shown"),
        ("[[b\\|shown]]", "/b", "shown"),
        ("[[b#My Heading]]", "/b#my-heading", "b › My Heading"),
        ("[[b#my heading|shown]]", "/b#my-heading", "shown"),
        ("[[b#^block]]", "/b#%5Eblock", "b › ^block"),
        ("[[c d]]", "/x/c%20d", "c d"),
        ("[[x/c d]]", "/x/c%20d", "x/c d"),
        ("[[/x/c d]]", "/x/c%20d", "/x/c d"),
        ("[[other name]]", "/x/c%20d", "other name"),
        ("[[Title]]", "/b", "Title"),
        ("[[x]]", "/x/", "x"),
        ("[shown](b.md)", "/b", "shown"),
        ("[shown](b)", "/b", "shown"),
        ("[shown](./b.md)", "/b", "shown"),
        ("[shown](/b.md)", "/b", "shown"),
        ("[shown](b.md#my-heading)", "/b#my-heading", "shown"),
        ("[shown](b.md#My%20Heading)", "/b#my-heading", "shown"),
        ("[shown](x/c%20d.md)", "/x/c%20d", "shown"),
        ("[shown](<x/c d.md>)", "/x/c%20d", "shown"),
        ("[shown](x/)", "/x/", "shown"),
    ] {
        // In a table, a pipe must be escaped.
        let text_in =
            if link.contains("\\|") { format!("| a |\n|---|\n| {link} |") } else { link.to_owned() };
        let html = linked("a.md", &text_in, &others);
        let wanted = format!("<a href=\"{href}\">{text}</a>");
        assert!(html.contains(&wanted), "{link}: {wanted} not in {html}");
    }
}

#[test]
fn relative_links_are_relative_to_their_note() {
    let others = [("b.md", "root"), ("x/b.md", "inner"), ("x/y/d.md", "")];
    assert!(linked("x/a.md", "[t](b.md)", &others).contains("href=\"/x/b\""));
    assert!(linked("x/a.md", "[t](../b.md)", &others).contains("href=\"/b\""));
    assert!(linked("x/a.md", "[t](y/d.md)", &others).contains("href=\"/x/y/d\""));
    assert!(linked("x/a.md", "[[d]]", &others).contains("href=\"/x/y/d\""));
    assert!(
        linked("x/a.md", "[t](../../../b.md)", &others).contains("class=\"broken\""),
        "it leaves the vault"
    );
}

#[test]
fn broken_links_are_marked_and_told() {
    let vault = vault(&[("a.md", "[[nothing]] [t](gone.md) ![[lost.png]] [[a#none]]")]);
    assert_eq!(article(&vault, "/a").matches("class=\"broken\"").count(), 3);
    assert_eq!(vault.warnings().len(), 4, "{:?}", vault.warnings());
}

#[test]
fn images_and_files_are_shown_with_size_and_text() {
    let vault = vault(&[
        (
            "a.md",
            "![[pic.png|200x100]] ![[pic.png|120]] ![[pic.png|A picture]] ![alt|50](img/pic.png) [doc](d.pdf) ![[d.pdf]] ![[s.mp3]]",
        ),
        ("img/pic.png", "png"),
        ("img/unused.png", "png"),
        ("d.pdf", "pdf"),
        ("s.mp3", "mp3"),
    ]);
    let html = article(&vault, "/a");
    for wanted in [
        "<img src=\"/img/pic.png\" alt=\"pic.png\" width=\"200\" height=\"100\" loading=\"lazy\">",
        "<img src=\"/img/pic.png\" alt=\"pic.png\" width=\"120\" loading=\"lazy\">",
        "<img src=\"/img/pic.png\" alt=\"A picture\" loading=\"lazy\">",
        "<img src=\"/img/pic.png\" alt=\"alt\" width=\"50\" loading=\"lazy\">",
        "<a href=\"/d.pdf\">doc</a>",
        "<a class=\"file\" href=\"/d.pdf\">d.pdf</a>",
        "<audio controls preload=\"none\" src=\"/s.mp3\"",
    ] {
        assert!(html.contains(wanted), "{wanted} not in {html}");
    }
    assert_eq!(vault.page("/img/pic.png").map(|page| page.content_type), Some("image/png"));
    assert!(is_missing(&vault, "/img/unused.png"), "nobody shows it");
}

#[test]
fn embeds_show_notes_sections_and_blocks() {
    let b = "# B\n\nintro\n\n## One\n\nfirst ^mark\n\n## Two\n\nsecond";
    let whole = linked("a.md", "![[b]]", &[("b.md", b)]);
    assert!(whole.contains("<div class=\"embed\"><p class=\"from\"><a href=\"/b\">B</a></p>"), "{whole}");
    assert!(whole.contains("intro") && whole.contains("second"));
    assert!(whole.contains("id=\"embed:1:one\""), "ids stay unique: {whole}");
    let section = linked("a.md", "![[b#One]]", &[("b.md", b)]);
    assert!(
        section.contains("first") && !section.contains("intro") && !section.contains("second"),
        "{section}"
    );
    let block = linked("a.md", "![[b#^mark]]", &[("b.md", b)]);
    assert!(block.contains("first") && !block.contains("One") && !block.contains("second"), "{block}");
}

#[test]
fn embeds_in_a_circle_end() {
    let vault = vault(&[("a.md", "A ![[b]]"), ("b.md", "B ![[c]] ![[b]]"), ("c.md", "C ![[a]] ![[c]]")]);
    let html = article(&vault, "/a");
    assert_eq!(html.matches("class=\"embed\"").count(), 2, "{html}");
    assert!(html.contains("<a href=\"/a\">a</a>") && html.contains("<a href=\"/b\">b</a>"), "{html}");
}

#[test]
fn embeds_that_multiply_are_bounded() {
    let many = |to: &str| format!("![[{to}]]\n\n").repeat(50);
    let vault = vault(&[
        ("a.md", &many("b")),
        ("b.md", &many("c")),
        ("c.md", &many("d")),
        ("d.md", &many("e")),
        ("e.md", "end"),
    ]);
    let html = article(&vault, "/a");
    assert!(html.matches("class=\"embed\"").count() <= 200);
    assert!(html.len() < 4 << 20, "{}", html.len());
}

#[test]
fn backlinks_are_sorted_and_follow_titles() {
    let vault = vault(&[("a.md", "# Zed\n[[c]]"), ("b.md", "# Alpha\n[[c]] [[c]]"), ("c.md", "[[c]]")]);
    let list = |vault: &crate::Vault| {
        let page = page(vault, "/c");
        let aside = page.split_once("<aside").map(|(_, aside)| aside.to_owned()).unwrap_or_default();
        ["Zed", "Alpha", "Beta"].map(|title| aside.find(&format!(">{title}<")))
    };
    let [zed, alpha, _] = list(&vault);
    assert!(alpha < zed && alpha.is_some());
    let vault = vault.apply([put("a.md", "# Beta\n[[c]]"), put("b.md", "no link")]);
    let [zed, alpha, beta] = list(&vault);
    assert!(beta.is_some() && zed.is_none() && alpha.is_none());
}

#[test]
fn links_to_private_notes_are_text_that_tells_nothing() {
    let secret = (
        "plans/Fusion Reactor.md",
        "---\npublish: false\ntitle: Concealed Title\naliases: [Codename]\n---\nbody",
    );
    for link in [
        "[[Fusion Reactor]]",
        "[[plans/Fusion Reactor#Cost]]",
        "[[Concealed Title]]",
        "[[codename]]",
        "[Fusion Reactor](plans/Fusion%20Reactor.md)",
        "[see fusion reactor](plans/Fusion%20Reactor.md \"Fusion Reactor\")",
        "[[Fusion Reactor|the Concealed Title]]",
        "![[Fusion Reactor]]",
        "![Fusion Reactor](plans/Fusion%20Reactor.md)",
    ] {
        let vault = vault(&[
            ("a.md", &format!("# Say {link}\n\nSay {link}.\n\n## B {link}\n\n## C\n\n## D")),
            secret,
        ]);
        assert!(article(&vault, "/a").contains("(unpublished)"), "{link}");
        for (url, bytes) in super::everything(&vault) {
            let text = format!("{url} {}", String::from_utf8_lossy(&bytes)).to_lowercase();
            for word in ["fusion", "concealed", "codename", "plans"] {
                assert!(!text.contains(word), "{link}: {word} in {url}: {text}");
            }
        }
    }
    let vault = vault(&[("a.md", "[[Fusion Reactor|our future]]"), secret]);
    assert!(article(&vault, "/a").contains("<p>our future</p>"), "the author's own words stay");
}

#[test]
fn addresses_are_readable_and_others_lead_to_them() {
    let vault = vault(&[
        ("Hello World.md", ""),
        ("Folder/README.md", ""),
        ("Folder/Ünï.md", ""),
        ("tags/x.md", ""),
        ("v1.md", ""),
        ("a.png.md", ""),
        ("list/one.md", ""),
    ]);
    for url in [
        "/Hello%20World",
        "/Folder/",
        "/Folder/%C3%9Cn%C3%AF",
        "/tags/x.md",
        "/v1.md",
        "/a.png.md",
        "/list/",
        "/",
    ] {
        assert!(vault.page(url).is_some(), "{url} in {:?}", vault.addresses());
    }
    for (asked, url) in [
        ("/hello%20world", "/Hello%20World"),
        ("/Hello World", "/Hello%20World"),
        ("/Hello%20World/", "/Hello%20World"),
        ("/Hello%20World.md", "/Hello%20World"),
        ("/folder", "/Folder/"),
        ("/folder/u\u{308}n%C3%8F", "/Folder/%C3%9Cn%C3%AF"),
        ("/LIST", "/list/"),
    ] {
        assert_eq!(moved(&vault, asked).as_deref(), Some(url), "{asked}");
    }
    for path in [
        "/../etc/passwd",
        "/%2e%2e/x",
        "/Folder/..%2fHello%20World",
        "/%00",
        "",
        "Hello%20World",
        "/%ff",
        "/a\\b",
        &format!("/{}", "a".repeat(100_000)),
    ] {
        assert!(is_missing(&vault, path), "{path:.50}");
    }
    assert!(matches!(vault.find("/Hello%20World"), PageLookup::Page(page) if page.status == 200));
}

#[test]
fn what_nobody_could_read_is_told() {
    let vault = vault(&[("v1/a.md", "x"), ("b.md", "![[p.png]]"), ("_/p.png", "p"), ("robots.txt", "x")]);
    assert_eq!(vault.warnings().len(), 2, "{:?}", vault.warnings());
    assert!(article(&vault, "/b").contains("class=\"broken\""));
    assert!(page(&vault, "/robots.txt").starts_with("User-agent"));
}

#[test]
fn an_index_note_takes_its_folders_address_and_gives_it_back() {
    let vault = vault(&[("f/a.md", "[[f]]"), ("f/README.md", "readme")]);
    assert!(article(&vault, "/f/").contains("readme"));
    let vault = vault.apply([put("f/index.md", "index")]);
    assert!(article(&vault, "/f/").contains("index") && article(&vault, "/f/README").contains("readme"));
    let vault =
        vault.apply([Change::Remove("f/index.md".to_owned()), Change::Remove("f/README.md".to_owned())]);
    assert!(page(&vault, "/f/").contains("<a href=\"/f/a\">a</a>"), "a list again");
    assert!(article(&vault, "/f/a").contains("<a href=\"/f/\">f</a>"));
}

#[test]
fn names_that_differ_in_case_have_their_own_pages() {
    let vault = vault(&[("A.md", "upper [[a]] [[A]]"), ("a.md", "lower")]);
    let html = article(&vault, "/A");
    assert!(html.contains("<a href=\"/a\">a</a> <a href=\"/A\">A</a>"), "{html}");
}

#[test]
fn links_to_other_sites_and_schemes() {
    for good in ["https://x.org", "mailto:a@x.org", "//x.org/a", "tel:+1"] {
        assert!(rendered(&format!("[t]({good})")).contains(&format!("href=\"{good}\"")), "{good}");
    }
    assert!(rendered("[t](/v1/sql)").contains("<a href=\"/v1/sql\">t</a>"), "another part of this server");
}

#[test]
fn a_note_that_was_not_read_is_not_named() {
    let text = "[[Big]] [[x/Big|the big one]] [[Big|ours]] ![[Big]] [[.p/Plan]] [t](.p/Plan.md) [[other]]";
    let with = vault(&[("a.md", text), ("z/other.md", "")]);
    assert_eq!(article(&with, "/a").matches("class=\"broken\"").count(), 6);
    let withheld = ["x/Big.md", ".p/Plan.md", "a/other.md"];
    let vault = with.apply(withheld.map(|path| Change::Withhold(path.to_owned())));
    let html = article(&vault, "/a");
    assert!(!html.contains("Big") && !html.contains("big") && !html.contains("Plan"), "{html}");
    assert!(html.contains("ours") && html.contains("href=\"/z/other\""), "{html}");
    assert_eq!(html.matches("class=\"withheld\"").count(), 4, "{html}");
    assert_eq!((vault.notes().count(), vault.addresses().len()), (2, with.addresses().len()));
    // One of the notes was read meanwhile, another was removed.
    let vault = vault.apply([put("x/Big.md", "read"), Change::Remove(".p/Plan.md".into())]);
    let html = article(&vault, "/a");
    assert!(html.contains("href=\"/x/Big\"") && html.matches("class=\"broken\"").count() == 2, "{html}");
    let vault = vault.apply([Change::Withhold("x/Big.md".into())]);
    assert!(!article(&vault, "/a").contains("Big") && is_missing(&vault, "/x/Big"));
}
