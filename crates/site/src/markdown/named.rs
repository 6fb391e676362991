//! Names of notes in positions where no link is possible: in attributes, code, HTML, the text of a link, front matter.

use super::wikilinks::{self, Item, Kind, Part, parts};
use super::{Walk, link};
use crate::body::{Body, Link, Piece, Span, Syntax};
use crate::path;

impl Item<'_> {
    /// Returns the link for a position where it can only be text.
    pub(super) fn named(&self) -> Link {
        match self.kind {
            Kind::Link | Kind::Embed => Link { syntax: Syntax::Named, ..link::of(&self.said(), false) },
            Kind::Quoted | Kind::Literal => self.quoted(self.text()),
        }
    }

    /// Returns a link that is shown as `text` and only hides a private name.
    pub(super) fn quoted(&self, text: String) -> Link {
        let label = Some(vec![Span::Text(text)]);
        Link { syntax: Syntax::Quoted, label, ..link::of(&self.said(), false) }
    }

    /// Tells whether it embeds a picture or another file, judged by the name.
    pub(super) fn is_file(&self) -> bool {
        path::content_type(&link::of(&self.said(), true).target).is_some()
    }
}

impl Walk<'_> {
    /// Tells whether the original of a mark may be written once more within the limit, and charges its length. The
    /// caller must ask each time.
    pub(super) fn may_say(&mut self, item: &Item<'_>) -> bool {
        let left = self.said_max.checked_sub(item.source.len());
        self.said_max = left.unwrap_or(self.said_max);
        left.is_some()
    }

    fn add(&mut self, link: Link) -> u32 {
        self.body.links.push(link);
        self.body.links.len() as u32 - 1
    }

    /// Writes the text of a link here.
    pub(super) fn say(&mut self, link: Link) {
        let at = self.add(link);
        self.say_at(at);
    }

    pub(super) fn say_at(&mut self, at: u32) {
        self.link_span(at);
        self.piece(Piece::Say(at));
    }

    /// Converts a text with marks to spans. `of` makes the link of each mark.
    pub(super) fn spans(&mut self, text: &str, of: impl Fn(&Item<'_>) -> Link) -> Vec<Span> {
        let mut spans = Vec::new();
        for part in parts(text, self.items) {
            spans.push(match part {
                Part::Text(text) => Span::Text(text.to_owned()),
                Part::Item(item) if !self.may_say(&item) => Span::Text("…".to_owned()),
                Part::Item(item) if item.kind == Kind::Literal => Span::Text(item.source.to_owned()),
                Part::Item(item) => Span::Link(self.add(of(&item))),
            });
        }
        spans
    }

    /// Converts a text for an attribute or the label of a link.
    pub(super) fn named(&mut self, text: &str) -> Vec<Span> {
        self.spans(text, |item| item.named())
    }

    /// Converts HTML that the author wrote, in which `[[a]]` is text.
    pub(super) fn quoted(&mut self, html: &str) -> Vec<Span> {
        self.spans(html, |item| item.quoted(item.source.to_owned()))
    }

    /// Writes a text in which `[[a]]` is text: math, and titles that the parser made.
    pub(super) fn words(&mut self, text: &str) {
        for span in self.spans(text, |item| item.quoted(item.text())) {
            match span {
                Span::Text(text) => self.text(&text),
                Span::Link(at) => self.say_at(at),
            }
        }
    }

    pub(super) fn line_of_code(&mut self, code: &str) -> String {
        let is_cell = self.in_cell;
        self.written(code, |item| item.text_in_code(is_cell))
    }

    /// Replaces the marks in a text by their originals as the author wrote them. `of` gives the original of a mark.
    pub(super) fn written(&mut self, text: &str, of: impl Fn(&Item<'_>) -> String) -> String {
        let mut out = String::with_capacity(text.len());
        for part in parts(text, self.items) {
            match part {
                Part::Text(text) => out.push_str(text),
                Part::Item(item) if self.may_say(&item) => out.push_str(&of(&item)),
                Part::Item(_) => out.push('…'),
            }
        }
        out
    }
}

impl Body {
    /// Splits plain text (not Markdown) into text and the names of notes in it.
    pub(crate) fn named(&mut self, spans: Vec<Span>) -> Vec<Span> {
        let mut named = Vec::with_capacity(spans.len());
        for span in spans {
            let Span::Text(text) = &span else {
                named.push(span);
                continue;
            };
            let (marked, items) = wikilinks::mark(text);
            for part in parts(&marked, &items) {
                named.push(match part {
                    Part::Text(text) => Span::Text(text.to_owned()),
                    Part::Item(item) if item.kind == Kind::Literal => Span::Text(item.source.to_owned()),
                    Part::Item(item) => {
                        self.links.push(item.named());
                        Span::Link(self.links.len() as u32 - 1)
                    }
                });
            }
        }
        named
    }
}
