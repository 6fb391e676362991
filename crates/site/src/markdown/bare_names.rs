//! Names of notes in positions where no link is possible: in attributes, code, HTML, the text of a link, front matter.

use super::wikilinks::{self, MarkKind, MarkSource, MarkedPart, parts};
use super::{Walk, link};
use crate::body::{BodyPiece, Link, LinkSyntax, NoteBody, Span};
use crate::path;

impl MarkSource<'_> {
    /// Returns the link for a position where it can only be text.
    pub(super) fn as_name(&self) -> Link {
        match self.kind {
            MarkKind::Link | MarkKind::Embed => {
                Link { syntax: LinkSyntax::Named, ..link::from_wikilink(&self.parsed(), false) }
            }
            MarkKind::Quoted | MarkKind::Literal => self.quoted(self.text()),
        }
    }

    /// Returns a link that is shown as `text` and only hides a private name.
    pub(super) fn quoted(&self, text: String) -> Link {
        let label = Some(vec![Span::Text(text)]);
        Link { syntax: LinkSyntax::Quoted, label, ..link::from_wikilink(&self.parsed(), false) }
    }

    /// Tells whether it embeds a picture or another file, judged by the name.
    pub(super) fn is_file(&self) -> bool {
        path::content_type(&link::from_wikilink(&self.parsed(), true).target).is_some()
    }
}

impl Walk<'_> {
    /// Tells whether the original of a mark may be written once more within the limit, and charges its length. The
    /// caller must ask each time.
    pub(super) fn charge(&mut self, item: &MarkSource<'_>) -> bool {
        let left = self.originals_left.checked_sub(item.source.len());
        self.originals_left = left.unwrap_or(self.originals_left);
        left.is_some()
    }

    fn add(&mut self, link: Link) -> u32 {
        self.body.links.push(link);
        self.body.links.len() as u32 - 1
    }

    /// Writes the text of a link here.
    pub(super) fn write_link_text(&mut self, link: Link) {
        let at = self.add(link);
        self.write_text_of(at);
    }

    pub(super) fn write_text_of(&mut self, at: u32) {
        self.link_span(at);
        self.piece(BodyPiece::LinkText(at));
    }

    /// Converts a text with marks to spans. `of` makes the link of each mark.
    pub(super) fn spans(&mut self, text: &str, of: impl Fn(&MarkSource<'_>) -> Link) -> Vec<Span> {
        let mut spans = Vec::new();
        for part in parts(text, self.items) {
            spans.push(match part {
                MarkedPart::Text(text) => Span::Text(text.to_owned()),
                MarkedPart::Mark(item) if !self.charge(&item) => Span::Text("…".to_owned()),
                MarkedPart::Mark(item) if item.kind == MarkKind::Literal => {
                    Span::Text(item.source.to_owned())
                }
                MarkedPart::Mark(item) => Span::Link(self.add(of(&item))),
            });
        }
        spans
    }

    /// Converts a text for an attribute or the label of a link.
    pub(super) fn name_spans(&mut self, text: &str) -> Vec<Span> {
        self.spans(text, |item| item.as_name())
    }

    /// Converts HTML that the author wrote, in which `[[a]]` is text.
    pub(super) fn quoted(&mut self, html: &str) -> Vec<Span> {
        self.spans(html, |item| item.quoted(item.source.to_owned()))
    }

    /// Writes a text in which `[[a]]` is text: math, and titles that the parser made.
    pub(super) fn write_quoted(&mut self, text: &str) {
        for span in self.spans(text, |item| item.quoted(item.text())) {
            match span {
                Span::Text(text) => self.text(&text),
                Span::Link(at) => self.write_text_of(at),
            }
        }
    }

    pub(super) fn line_of_code(&mut self, code: &str) -> String {
        let is_cell = self.in_cell;
        self.restore_marks(code, |item| item.text_in_code(is_cell))
    }

    /// Replaces the marks in a text by their originals as the author wrote them. `of` gives the original of a mark.
    pub(super) fn restore_marks(&mut self, text: &str, of: impl Fn(&MarkSource<'_>) -> String) -> String {
        let mut out = String::with_capacity(text.len());
        for part in parts(text, self.items) {
            match part {
                MarkedPart::Text(text) => out.push_str(text),
                MarkedPart::Mark(item) if self.charge(&item) => out.push_str(&of(&item)),
                MarkedPart::Mark(_) => out.push('…'),
            }
        }
        out
    }
}

impl NoteBody {
    /// Splits plain text (not Markdown) into text and the names of notes in it.
    pub(crate) fn split_names(&mut self, spans: Vec<Span>) -> Vec<Span> {
        let mut named = Vec::with_capacity(spans.len());
        for span in spans {
            let Span::Text(text) = &span else {
                named.push(span);
                continue;
            };
            let (marked, items) = wikilinks::mark(text);
            for part in parts(&marked, &items) {
                named.push(match part {
                    MarkedPart::Text(text) => Span::Text(text.to_owned()),
                    MarkedPart::Mark(item) if item.kind == MarkKind::Literal => {
                        Span::Text(item.source.to_owned())
                    }
                    MarkedPart::Mark(item) => {
                        self.links.push(item.as_name());
                        Span::Link(self.links.len() as u32 - 1)
                    }
                });
            }
        }
        named
    }
}
