use super::{article, page, rendered, vault, vault_with};
use crate::{Note, Options};

#[track_caller]
fn check(markdown: &str, html: &str) {
    assert_eq!(rendered(markdown).trim(), html.trim(), "of {markdown:?}");
}

#[test]
fn commonmark_comes_out_as_it_should() {
    check(
        "one *two* **three** `<four>`",
        "<p>one <em>two</em> <strong>three</strong> <code>&lt;four&gt;</code></p>",
    );
    check("a\nb  \nc", "<p>a\nb<br>\nc</p>");
    check("- a\n- b", "<ul>\n<li>a</li>\n<li>b</li>\n</ul>");
    check("- a\n\n- b", "<ul>\n<li><p>a</p>\n</li>\n<li><p>b</p>\n</li>\n</ul>");
    check("3. a\n4. b", "<ol start=\"3\">\n<li>a</li>\n<li>b</li>\n</ol>");
    check("> a\n> > b", "<blockquote>\n<p>a</p>\n<blockquote>\n<p>b</p>\n</blockquote>\n</blockquote>");
    check(
        "```rust x\na < b\n```",
        "<pre tabindex=\"0\"><code class=\"language-rust\">a &lt; b\n</code></pre>",
    );
    check("---", "<hr>");
    check(
        "[a](https://x.org/?q=1&r=2 \"T\")",
        "<p><a class=\"outside\" href=\"https://x.org/?q=1&amp;r=2\" title=\"T\" rel=\"noopener\">a</a></p>",
    );
    check("&copy; \\*no\\*", "<p>© *no*</p>");
}

#[test]
fn extensions_come_out_as_they_should() {
    check("~~a~~ ==b==", "<p><del>a</del> <mark>b</mark></p>");
    check(
        "- [x] a\n- [ ] b",
        "<ul class=\"tasks\">\n<li class=\"task\"><input type=\"checkbox\" disabled checked> a</li>\n<li class=\"task\"><input type=\"checkbox\" disabled> b</li>\n</ul>",
    );
    let table = rendered("| a | b |\n|---|--:|\n| 1 | 2 |");
    assert!(
        table.contains(
            "<thead>\n<tr><th scope=\"col\">a</th><th scope=\"col\" class=\"right\">b</th></tr>\n</thead>"
        ),
        "{table}"
    );
    assert!(
        table.contains("<tbody>\n<tr><td>1</td><td class=\"right\">2</td></tr>\n</tbody></table></div>"),
        "{table}"
    );
    check("$a<b$", "<p><code class=\"math\">a&lt;b</code></p>");
    check(
        "https://x.org",
        "<p><a class=\"outside\" href=\"https://x.org\" rel=\"noopener\">https://x.org</a></p>",
    );
    let footnote = rendered("a[^1]\n\n[^1]: b");
    assert!(footnote.contains("<a id=\"fnref:1\" href=\"#fn%3A1\">1</a>"), "{footnote}");
    assert!(
        footnote.contains("<li id=\"fn:1\"><p>b</p>\n<a class=\"back\" href=\"#fnref%3A1\""),
        "{footnote}"
    );
}

#[test]
fn callouts_have_a_title_and_may_fold() {
    check(
        "> [!note]\n> a",
        "<div class=\"callout note\"><p class=\"callout-title\">Note</p>\n<p>a</p>\n</div>",
    );
    check(
        "> [!WARNING] Mind *this*\n> a",
        "<div class=\"callout warning\"><p class=\"callout-title\">Mind <em>this</em></p>\n<p>a</p>\n</div>",
    );
    check(
        "> [!tip]- Folded\n> a",
        "<details class=\"callout tip\"><summary class=\"callout-title\">Folded</summary>\n<p>a</p>\n</details>",
    );
    assert!(!rendered("> [!\"><script>]\n> a").contains("<script>"));
}

#[test]
fn comments_are_nowhere() {
    check("a %%secret%% b", "<p>a  b</p>");
    check("a\n\n%%\nsecret 50% [[x]]\n\nmore #secret\n%%\n\nb", "<p>a</p>\n<p>b</p>");
    check("a `%%` b %%secret%%", "<p>a <code>%%</code> b</p>");
    check("```\n%%kept%%\n```", "<pre tabindex=\"0\"><code>%%kept%%\n</code></pre>");
    check("a %% never ends\n\nsecret", "<p>a</p>");
    let note = Note::parse("a.md", b"# T %%secret%%\n%%\n#secret\n%%\ntext");
    assert_eq!((note.title().as_str(), note.text().as_str()), ("T", "T\ntext"));
    assert!(note.tags().is_empty());
}

#[test]
fn headings_have_ids_that_links_find_in_every_script() {
    let html = rendered("## Größe & Maß\n\n## größe maß\n\n## Größe & Maß\n\n## 日本 語\n\n## !!!");
    for id in ["größe--maß", "größe-maß", "größe--maß-1", "日本-語", "section"] {
        assert!(html.contains(&format!("id=\"{id}\"")), "{id} in {html}");
    }
    let html = rendered("## Größe & Maß\n\n[[#Größe & Maß]] [x](#größe--maß) [[#nowhere]]");
    assert_eq!(html.matches("href=\"#gr%C3%B6%C3%9Fe--ma%C3%9F\"").count(), 3, "{html}");
}

#[test]
fn a_list_of_contents_comes_with_three_headings() {
    let two = vault(&[("a.md", "# T\n\n## One\n\n## Two")]);
    assert!(!page(&two, "/a").contains("class=\"contents\""));
    let three = vault(&[("a.md", "# T\n\n## One `<b>`\n\n### Two\n\n## Three")]);
    let html = page(&three, "/a");
    assert!(html.contains("<div class=\"page with-contents\">"));
    // Without room beside the text, the table of contents stands below the title and can be unfolded.
    let (above, below) = html.split_once("<details class=\"contents\">").expect("a folded list");
    assert!(above.contains("</h1>") && below.contains("</nav>\n</details>"), "{html}");
    assert!(
        html.contains("<ul>\n<li><a href=\"#one-b\">One &lt;b&gt;</a>\n<ul><li><a href=\"#two\">Two</a></li></ul></li>\n<li><a href=\"#three\">Three</a></li></ul>"),
        "{html}"
    );
}

#[test]
fn a_page_has_one_title() {
    for (text, title) in [
        ("# One\n\ntext", "One"),
        ("---\ntitle: 2024\n---\n# One\n\ntext", "2024"),
        ("text\n\n## One", "One"),
        ("text", "a"),
        ("---\ntitle: \"\"\n---\ntext", "a"),
    ] {
        let vault = vault(&[("a.md", text)]);
        assert_eq!(vault.card("a.md").map(|card| card.title.as_str()), Some(title), "{text:?}");
        assert_eq!(article(&vault, "/a").matches("<h1").count(), 1, "{text:?}");
    }
}

#[test]
fn tags_come_from_front_matter_and_text() {
    let note = Note::parse("a.md", "---\ntags: [One, 'two/three', \"#four\"]\n---\n#Five and x#six, #7, \\#eight `#nine` (#zehn)\n\n# Head".as_bytes());
    assert_eq!(note.tags(), ["five", "four", "one", "two/three", "zehn"]);
    let vault = vault(&[("a.md", "#Größe")]);
    assert!(article(&vault, "/a").contains("<a class=\"tag\" href=\"/tags/gr%C3%B6%C3%9Fe\">#Größe</a>"));
    assert!(page(&vault, "/tags/gr%C3%B6%C3%9Fe").contains("<h1>#größe</h1>"));
}

#[test]
fn html_is_text_unless_the_site_allows_it() {
    check("a <b>c</b>", "<p>a &lt;b&gt;c&lt;/b&gt;</p>");
    check("<div onclick=x>\n</div>", "&lt;div onclick=x&gt;\n&lt;/div&gt;");
    check("a <!-- secret --> b\n\n<!-- secret\n\nmore -->\n\nc", "<p>a  b</p>\n<p>c</p>");
    let allowed = Options { raw_html: true, ..super::options() };
    let vault = vault_with(allowed, &[("a.md", "a <b>c</b>")]);
    assert!(article(&vault, "/a").contains("<p>a <b>c</b></p>"));
    // HTML that acts without a script is removed as well.
    let form = "<form method=post action=/v1/sql enctype=\"text/plain\">\n<input name=x>\n</form>\n\n<meta http-equiv=refresh content=0>\n\na <button>b</button> <iframe src=/></iframe>";
    let vault = vault.apply([super::put("a.md", form)]);
    let html = article(&vault, "/a");
    for tag in ["<form", "<input", "<meta", "<button", "<iframe"] {
        assert!(!html.contains(tag), "{html}");
    }
}

#[test]
fn line_breaks_are_kept_where_the_site_wants_them() {
    let kept = Options { line_breaks: true, ..super::options() };
    assert!(article(&vault_with(kept, &[("a.md", "a\nb")]), "/a").contains("<p>a<br>\nb</p>"));
}

#[test]
fn front_matter_says_what_it_means_whatever_its_types() {
    let note = Note::parse(
        "a.md",
        b"---\r\ntitle: 2024\r\ndescription: 5\r\naliases: one\r\npublish: yes\r\ndate: 2024-05-01\r\nupdated: 2024-05-02T01:00:00+01:00\r\nnested: {a: [1, {b: c}]}\r\n---\r\ntext",
    );
    assert_eq!(note.title(), "2024");
    assert_eq!(note.description().as_deref(), Some("5"));
    assert_eq!(note.aliases(), ["one"]);
    assert_eq!(note.publish(), Some(true));
    assert_eq!((note.created(), note.updated()), (Some(1_714_521_600), Some(1_714_608_000)));
    assert_eq!(note.text(), "text");
    assert!(note.warnings().is_empty(), "{:?}", note.warnings());
}

#[test]
fn publish_fails_closed() {
    for (front, publish) in [
        ("publish: true", Some(true)),
        ("publish: TRUE", Some(true)),
        ("Publish: true", Some(true)),
        ("publish: false", Some(false)),
        ("publish:", Some(false)),
        ("publish: maybe", Some(false)),
        ("publish: [true]", Some(false)),
        ("publish: true\ndraft: true", Some(false)),
        ("title: x", None),
        ("", None),
        // These have broken front matter.
        ("publish: true\n  : : [", Some(false)),
        ("a: &x [1]\nb: *x\npublish: true", Some(false)),
        ("- a list", Some(false)),
    ] {
        let note = Note::parse("a.md", format!("---\n{front}\n---\ntext").as_bytes());
        assert_eq!(note.publish(), publish, "{front:?}: {:?}", note.warnings());
    }
    assert_eq!(Note::parse("a.md", b"---\npublish: true\n\ntext").publish(), Some(false), "no closing line");
    assert_eq!(Note::parse("a.md", b"---\n\ntext\n").publish(), None, "a rule across the page");
    assert_eq!(Note::parse("a.md", b"---\npublish: true\n---\n\xff").publish(), Some(false), "not UTF-8");
}
