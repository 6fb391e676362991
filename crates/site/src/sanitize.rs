//! Sanitizes HTML that authors wrote, if the site allows it. Only listed elements and attributes stay; all others are
//! removed.
//!
//! The security policy already keeps scripts from running on any page. This module removes what can do harm without a
//! script: a form that sends a reader's click to the server's own interface, a `meta` that leads away, frames, styles
//! that cover the page. The kept HTML is written anew, so that a browser reads it exactly as this module did.

use crate::text::escape_into;

/// Elements that are kept, sorted.
const ELEMENTS: [&str; 78] = [
    "a",
    "abbr",
    "address",
    "article",
    "aside",
    "audio",
    "b",
    "bdi",
    "bdo",
    "big",
    "blockquote",
    "br",
    "caption",
    "center",
    "cite",
    "code",
    "col",
    "colgroup",
    "dd",
    "del",
    "details",
    "dfn",
    "div",
    "dl",
    "dt",
    "em",
    "figcaption",
    "figure",
    "font",
    "footer",
    "h1",
    "h2",
    "h3",
    "h4",
    "h5",
    "h6",
    "header",
    "hr",
    "i",
    "img",
    "ins",
    "kbd",
    "li",
    "mark",
    "ol",
    "p",
    "picture",
    "pre",
    "q",
    "rp",
    "rt",
    "ruby",
    "s",
    "samp",
    "section",
    "small",
    "source",
    "span",
    "strike",
    "strong",
    "sub",
    "summary",
    "sup",
    "table",
    "tbody",
    "td",
    "tfoot",
    "th",
    "thead",
    "time",
    "tr",
    "track",
    "tt",
    "u",
    "ul",
    "var",
    "video",
    "wbr",
];

/// Attributes that are kept, sorted.
const ATTRIBUTES: [&str; 46] = [
    "abbr",
    "align",
    "alt",
    "aria-hidden",
    "aria-label",
    "border",
    "cite",
    "class",
    "color",
    "cols",
    "colspan",
    "controls",
    "datetime",
    "dir",
    "download",
    "headers",
    "height",
    "hidden",
    "href",
    "hreflang",
    "id",
    "kind",
    "label",
    "lang",
    "loading",
    "loop",
    "media",
    "muted",
    "name",
    "open",
    "poster",
    "preload",
    "reversed",
    "role",
    "rowspan",
    "scope",
    "span",
    "src",
    "srclang",
    "srcset",
    "start",
    "title",
    "type",
    "valign",
    "value",
    "width",
];

/// Attributes that hold an address.
const ADDRESSES: [&str; 4] = ["cite", "href", "poster", "src"];

/// Elements whose content is not text for readers. They are removed with their content.
const SILENT: [&str; 10] = [
    "iframe", "noembed", "noframes", "noscript", "object", "script", "style", "template", "textarea", "title",
];

/// Schemes that an address may have.
const SCHEMES: [&str; 5] = ["http", "https", "mailto", "tel", "xmpp"];

/// Appends the sanitized form of a piece of HTML to `out`.
pub(crate) fn sanitize_into(out: &mut String, html: &str) {
    let mut rest = html;
    while let Some(at) = rest.find('<') {
        // Text stays as it is, with its entities.
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        if rest.starts_with("<!") || rest.starts_with("<?") {
            rest = rest.find('>').map_or("", |end| &rest[end + 1..]);
            continue;
        }
        let Some((tag, after)) = Tag::read(rest) else {
            out.push_str("&lt;");
            rest = &rest[1..];
            continue;
        };
        rest = after;
        if ELEMENTS.binary_search(&tag.name.as_str()).is_ok() {
            tag.write(out);
        } else if !tag.closes && SILENT.contains(&tag.name.as_str()) {
            rest = skip_to_end(rest, &tag.name);
        }
    }
    out.push_str(rest);
}

struct Tag<'a> {
    /// Name of the element, in lower case.
    name: String,
    closes: bool,
    attributes: Vec<(String, Option<&'a str>)>,
}

impl<'a> Tag<'a> {
    /// Reads the tag at the start of a text. Returns it with the rest of the text. It is stricter than browsers are: an
    /// incomplete tag is text.
    fn read(text: &'a str) -> Option<(Tag<'a>, &'a str)> {
        let rest = text.strip_prefix('<')?;
        let (closes, rest) = rest.strip_prefix('/').map_or((false, rest), |rest| (true, rest));
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '-').unwrap_or(rest.len());
        if !rest.starts_with(|c: char| c.is_ascii_alphabetic()) {
            return None;
        }
        let mut tag = Tag { name: rest[..end].to_ascii_lowercase(), closes, attributes: Vec::new() };
        let mut rest = &rest[end..];
        loop {
            rest = rest.trim_start_matches(|c: char| c.is_ascii_whitespace() || c == '/');
            if let Some(after) = rest.strip_prefix('>') {
                return Some((tag, after));
            }
            let ends = |c: char| c.is_ascii_whitespace() || "=/>\"'<".contains(c);
            let end = rest.find(ends).filter(|end| *end > 0)?;
            let name = rest[..end].to_ascii_lowercase();
            rest = &rest[end..];
            let mut value = None;
            if let Some(after) = rest.trim_start().strip_prefix('=') {
                let after = after.trim_start();
                let (found, after) = match after.chars().next()? {
                    quote @ ('"' | '\'') => after[1..].split_once(quote)?,
                    _ => {
                        let end = after.find(|c: char| c.is_ascii_whitespace() || "\"'=<>`".contains(c))?;
                        after.split_at(end)
                    }
                };
                value = Some(found);
                rest = after;
            }
            tag.attributes.push((name, value));
        }
    }

    fn write(&self, out: &mut String) {
        out.push_str(if self.closes { "</" } else { "<" });
        out.push_str(&self.name);
        for (name, value) in self.attributes.iter().filter(|_| !self.closes) {
            let known = ATTRIBUTES.binary_search(&name.as_str()).is_ok();
            let value = value.unwrap_or_default();
            let fits = match name.as_str() {
                "srcset" => value.split(',').all(is_address),
                name if ADDRESSES.contains(&name) => is_address(value),
                _ => true,
            };
            if known && fits {
                out.push(' ');
                out.push_str(name);
                out.push_str("=\"");
                value_into(out, value);
                out.push('"');
            }
        }
        out.push('>');
    }
}

/// Escapes the value of an attribute, but keeps its entities.
fn value_into(out: &mut String, value: &str) {
    for (at, part) in value.split('&').enumerate() {
        out.push_str(if at == 0 { "" } else { "&" });
        escape_into(out, part);
    }
}

/// Tells whether a value is a path, or an address with an allowed scheme.
fn is_address(value: &str) -> bool {
    // Browsers drop control characters and blanks before they look for a scheme.
    let seen: String = value.chars().filter(|c| !c.is_control() && !c.is_whitespace()).collect();
    let head = seen.split(['/', '?', '#']).next().unwrap_or_default();
    // A scheme could be written with entities.
    let scheme = head.split_once(':').map(|(scheme, _)| scheme.to_ascii_lowercase());
    !head.contains('&') && scheme.is_none_or(|scheme| SCHEMES.contains(&scheme.as_str()))
}

/// Returns the text after the end tag of an element, or an empty text if there is none.
fn skip_to_end<'a>(text: &'a str, name: &str) -> &'a str {
    for (at, _) in text.match_indices("</") {
        let end = &text[at + 2..];
        if end.get(..name.len()).is_some_and(|found| found.eq_ignore_ascii_case(name)) {
            return end.find('>').map_or("", |close| &end[close + 1..]);
        }
    }
    ""
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(html: &str) -> String {
        let mut out = String::new();
        sanitize_into(&mut out, html);
        out
    }

    #[test]
    fn the_lists_can_be_searched() {
        assert!(ELEMENTS.is_sorted() && ATTRIBUTES.is_sorted());
    }

    #[test]
    fn what_is_harmless_stays_as_it_is() {
        for html in [
            "<b>x</b> &amp; &lt;",
            "<a href=\"https://x.org/?a&amp;b#c\" title=\"it&#39;s\">x</a>",
            "<img src=\"../a b.png\" width=\"20\" alt=\"\">",
            "<details open=\"\"><summary>x</summary>\n</details>",
            "<td colspan=\"2\" align=\"center\">",
        ] {
            assert_eq!(kept(html), html);
        }
        assert_eq!(kept("<BR/><hr  /><td nowrap colspan=2>"), "<br><hr><td colspan=\"2\">");
    }

    #[test]
    fn what_acts_goes() {
        for (html, left) in [
            (
                "<form method=post action=/v1/sql enctype=\"text/plain\"><input name='{\"sql\":\"' value=x><button>Go</button></form>",
                "Go",
            ),
            ("<meta http-equiv=refresh content='0;url=https://x.org'>", ""),
            ("<base href=https://x.org>", ""),
            ("<link rel=stylesheet href=//x.org>a", "a"),
            ("<script>alert(1)</script>a", "a"),
            ("<STYLE>body{}</sTyle>a", "a"),
            ("<iframe src=/v1/sql></iframe>", ""),
            ("<object data=x><embed src=x></object>a", "a"),
            ("<select><option>x</select><textarea>y</textarea>", "x"),
            ("<svg onload=x><a href=javascript:x>y</a></svg>", "<a>y</a>"),
            ("<a href=\"java&#115;cript:x\" onclick=x style=\"x\">y</a>", "<a>y</a>"),
            ("<a href=\" java\nscript:x\">", "<a>"),
            ("<a title=\"<form>\">", "<a title=\"&lt;form&gt;\">"),
            ("<a title='\"><form>'>", "<a title=\"&quot;&gt;&lt;form&gt;\">"),
            ("<for<form action=x>", "&lt;for"),
            ("<form action=x", "&lt;form action=x"),
            ("<b title=\"<form\">", "<b title=\"&lt;form\">"),
            ("<!-- <form> -->x<?php <b>?>", " -->x?>"),
            ("</form ><form/action=x>", ""),
        ] {
            assert_eq!(kept(html), left, "{html}");
        }
    }

    #[test]
    fn a_long_piece_costs_what_its_length_says() {
        let _limit = testkit::limit(30);
        for unit in
            ["<", "<a ", "<a b=\"", "<a b='<a c=\"", "<!", "<script>", "</", "<style></styl", "<a b=c "]
        {
            kept(&unit.repeat(300_000));
        }
    }
}
