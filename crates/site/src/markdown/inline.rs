//! Inline nodes: the content of a paragraph.

use comrak::Node;
use comrak::nodes::NodeValue;

use super::Walk;
use super::wikilinks::{MarkKind, MarkSource, MarkedPart, parts};
use crate::body::{BodyPiece, Span};
use crate::text::{encode_path, escape_into, fold};

impl Walk<'_> {
    pub(super) fn enter_inline(&mut self, node: Node<'_>, value: NodeValue) -> bool {
        match value {
            NodeValue::Text(text) => self.inline_text(node, &text),
            NodeValue::SoftBreak => {
                self.piece(BodyPiece::LineBreak);
                self.span(" ");
            }
            NodeValue::LineBreak => {
                self.html("<br>\n");
                self.span("\n");
            }
            NodeValue::Code(code) => {
                self.html("<code>");
                let code = self.line_of_code(&code.literal);
                self.text(&code);
                self.html("</code>");
            }
            NodeValue::Math(math) => {
                self.html(if math.display_math {
                    "<code class=\"math block\">"
                } else {
                    "<code class=\"math\">"
                });
                self.write_quoted(math.literal.trim());
                self.html("</code>");
            }
            NodeValue::HtmlInline(html) => self.raw(&html, false),
            NodeValue::Emph => self.open_mark("<em>"),
            NodeValue::Strong => self.open_mark("<strong>"),
            NodeValue::Strikethrough => self.open_mark("<del>"),
            NodeValue::Highlight => self.open_mark("<mark>"),
            NodeValue::FootnoteReference(reference) => {
                let number = reference.ix;
                self.html("<sup class=\"footnote\"><a");
                match reference.ref_num {
                    0 | 1 => self.id(&format!("fnref:{number}")),
                    again => self.id(&format!("fnref:{number}:{again}")),
                }
                self.reference(&format!("fn:{number}"));
                self.html(&format!(">{number}</a></sup>"));
            }
            NodeValue::Link(link) => return self.enter_link(node, &link.url, &link.title),
            NodeValue::Image(image) => {
                self.image(node, &image.url, &image.title);
                return false;
            }
            // All other nodes are containers without markup of their own, or belong to extensions that are off.
            _ => {}
        }
        true
    }

    pub(super) fn leave_inline(&mut self, value: NodeValue) {
        match value {
            NodeValue::Emph => self.close_mark("</em>"),
            NodeValue::Strong => self.close_mark("</strong>"),
            NodeValue::Strikethrough => self.close_mark("</del>"),
            NodeValue::Highlight => self.close_mark("</mark>"),
            NodeValue::Link(_) => self.leave_link(),
            _ => {}
        }
    }

    fn open_mark(&mut self, tag: &str) {
        self.lines += 1;
        self.html(tag);
    }

    fn close_mark(&mut self, tag: &str) {
        self.lines -= 1;
        self.html(tag);
    }

    /// Adds HTML that the author wrote. The options of the vault decide whether it stays HTML or is shown as text.
    pub(super) fn raw(&mut self, html: &str, is_block: bool) {
        let html = without_comments(html);
        let html = if is_block { html.trim_end_matches('\n') } else { &html };
        if html.trim().is_empty() {
            return;
        }
        let spans = self.quoted(html);
        self.piece(BodyPiece::Raw(spans.into()));
        self.html(if is_block { "\n" } else { "" });
    }

    /// Adds text, with the wikilinks and tags in it.
    fn inline_text(&mut self, node: Node<'_>, text: &str) {
        let mut begins = node
            .previous_sibling()
            .is_none_or(|before| matches!(before.data().value, NodeValue::SoftBreak | NodeValue::LineBreak));
        for part in parts(text, self.items) {
            match part {
                MarkedPart::Text(text) => self.text_with_tags(text, begins),
                MarkedPart::Mark(item) => self.write_mark(item),
            }
            begins = false;
        }
    }

    fn write_mark(&mut self, item: MarkSource<'_>) {
        match item.kind {
            _ if !self.charge(&item) => self.text("…"),
            MarkKind::Literal => self.text(item.source),
            MarkKind::Link if self.open_links.is_empty() => self.wikilink(&item),
            MarkKind::Embed if self.open_links.is_empty() || item.is_file() => self.embed(&item),
            MarkKind::Link | MarkKind::Embed | MarkKind::Quoted => self.write_link_text(item.as_name()),
        }
    }

    /// Adds text in which `#tags` become links to the page of the tag. That page exists, since this note has the tag.
    fn text_with_tags(&mut self, text: &str, mut begins: bool) {
        if !self.open_links.is_empty() || !text.contains('#') {
            return self.text(text);
        }
        let mut rest = text;
        while let Some(at) = rest.find('#') {
            let before = rest[..at].chars().next_back();
            begins = before.map_or(begins, |c| c.is_whitespace() || matches!(c, '(' | ',' | ';'));
            self.text(&rest[..at]);
            let tail = &rest[at + 1..];
            let end = tail.find(|c: char| !is_tag_char(c)).unwrap_or(tail.len());
            let tag = tail[..end].trim_end_matches(['/', '-']);
            if begins && is_tag(tag) && self.tags.add(tag) {
                self.html("<a class=\"tag\" href=\"/tags/");
                let address = encode_path(&fold(tag));
                self.html(&address);
                self.html("\">");
                self.text("#");
                self.text(tag);
                self.html("</a>");
                rest = &tail[tag.len()..];
            } else {
                self.text("#");
                rest = tail;
            }
            begins = false;
        }
        self.text(rest);
    }

    /// Writes an attribute with a value from the author.
    pub(super) fn attribute(&mut self, name: &str, value: &[Span]) {
        self.html(" ");
        self.html(name);
        self.html("=\"");
        for span in value {
            match span {
                Span::Text(text) => escape_into(&mut self.out, text),
                Span::Link(at) => self.piece(BodyPiece::LinkText(*at)),
            }
        }
        self.html("\"");
    }
}

/// Removes HTML comments. They are not meant for readers, like `%%` comments.
fn without_comments(html: &str) -> String {
    let mut kept = String::with_capacity(html.len());
    let mut rest = html;
    while let Some((before, comment)) = rest.split_once("<!--") {
        kept.push_str(before);
        rest = comment.split_once("-->").map_or("", |(_, after)| after);
    }
    kept.push_str(rest);
    kept
}

fn is_tag_char(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '-' | '_' | '/') || unicode_normalization::char::is_combining_mark(c)
}

/// Tells whether a text is a valid tag, by the rules of Obsidian: letters, digits, `-`, `_`, and `/` between levels;
/// not digits alone.
pub(crate) fn is_tag(tag: &str) -> bool {
    tag.chars().all(is_tag_char)
        && tag.chars().any(|c| !c.is_ascii_digit())
        && tag.split('/').all(|level| !level.is_empty())
        && tag.len() <= 200
}
