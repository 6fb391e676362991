//! Fills the holes of a note's body with links, embeds and ids.

use std::fmt::Write;
use std::sync::Arc;

use crate::body::{BodyPiece, EmbedContext, Link, LinkSyntax, Span, join_spans};
use crate::linked::{LinkTarget, LinkedNote};
use crate::markdown::size_attributes;
use crate::note::Note;
use crate::path::Media;
use crate::text::{encode_part, escape, escape_into};
use crate::vault::State;

/// The deepest nesting of embedded notes.
const EMBED_DEPTH_MAX: usize = 4;
/// The largest number of embeds on one page, so that a few notes that embed each other cannot make an endless page.
const EMBEDS_MAX: usize = 200;
/// Bytes of a page beyond which no further note is embedded.
const PAGE_BYTES_MAX: usize = 16 << 20;

/// The HTML at the end of an embed.
const EMBED_END: &str = "</div></div>\n";

pub(super) struct FilledBody {
    pub(super) html: String,
    /// Paths of other notes whose text is on the page.
    pub(super) shown: Vec<Arc<str>>,
}

/// Renders the text of a note as HTML.
pub(super) fn body(state: &State, linked: &LinkedNote, note: &Note) -> FilledBody {
    let mut fill = BodyFiller {
        state,
        page: &linked.card.path,
        out: String::new(),
        stack: Vec::new(),
        shown: Vec::new(),
        count: 0,
    };
    fill.pieces(linked, note, 0, note.body.pieces.len(), "");
    FilledBody { html: fill.out, shown: fill.shown }
}

struct BodyFiller<'a> {
    state: &'a State,
    page: &'a Arc<str>,
    out: String,
    /// The note of the page and the embedded notes around the current piece, outermost first.
    stack: Vec<Arc<str>>,
    shown: Vec<Arc<str>>,
    count: usize,
}

impl BodyFiller<'_> {
    fn pieces(&mut self, linked: &LinkedNote, note: &Note, start: usize, end: usize, prefix: &str) {
        self.stack.push(linked.card.path.clone());
        let options = &self.state.site.options;
        let mut skip_until = None;
        for piece in note.body.pieces.get(start..end).unwrap_or_default() {
            if let Some(link) = skip_until {
                if *piece == BodyPiece::LinkEnd(link) {
                    skip_until = None;
                }
                continue;
            }
            match piece {
                BodyPiece::Html(html) => {
                    let ends = html.strip_prefix("</p>\n").filter(|_| self.follows_embed());
                    if ends.is_some() {
                        self.drop_empty_paragraph();
                    }
                    self.out.push_str(ends.unwrap_or(html));
                }
                BodyPiece::Raw(spans) => {
                    let html = join_spans(spans, |at| linked.display_text(note, at, &options.words.withheld));
                    if options.raw_html {
                        crate::sanitize::sanitize_into(&mut self.out, &html)
                    } else {
                        escape_into(&mut self.out, &html)
                    }
                }
                BodyPiece::Id(id) => {
                    // After `#` the id is part of an `href`, and must be percent-encoded: browsers decode it before
                    // they compare.
                    let is_reference = self.out.ends_with('#');
                    let id = format!("{prefix}{id}");
                    let id = if is_reference { encode_part(&id) } else { escape(&id) };
                    self.out.push_str(&id);
                }
                BodyPiece::LineBreak => self.out.push_str(if options.line_breaks { "<br>\n" } else { "\n" }),
                BodyPiece::LinkStart(at) => {
                    if !self.open(linked, note, *at) {
                        skip_until = Some(*at);
                    }
                }
                BodyPiece::LinkEnd(at) => self.out.push_str(closing(target(linked, *at))),
                BodyPiece::Embed(at, context) => self.show(linked, note, *at, *context),
                BodyPiece::LinkText(at) => {
                    escape_into(&mut self.out, &linked.display_text(note, *at, &options.words.withheld));
                }
            }
        }
        self.stack.pop();
    }

    /// Writes the start of a link. Returns true if the content of the link must follow.
    fn open(&mut self, linked: &LinkedNote, note: &Note, at: u32) -> bool {
        let link = &note.body.links[at as usize];
        let words = &self.state.site.options.words;
        let target = target(linked, at);
        match target {
            LinkTarget::Withheld { label: true } => return true,
            LinkTarget::Withheld { label: false } => {
                let (hint, text) = (escape(&words.withheld_hint), escape(&words.withheld));
                let _ = write!(self.out, "<span class=\"withheld\" title=\"{hint}\">{text}</span>");
                return false;
            }
            LinkTarget::Broken => {
                let _ = write!(self.out, "<span class=\"broken\" title=\"{}\">", escape(&words.broken_hint));
                return true;
            }
            _ => {}
        }
        self.out.push_str("<a href=\"");
        let address = self.address(target);
        escape_into(&mut self.out, &address);
        self.out.push('"');
        self.out.push_str(&title_attribute(linked, note, link, &words.withheld));
        self.out.push('>');
        if matches!(target, LinkTarget::Note { is_veiled: true, .. }) {
            let shown = linked.display_text(note, at, &words.withheld);
            let _ = write!(self.out, "{}</a>", escape(&shown));
            return false;
        }
        true
    }

    fn address(&self, target: &LinkTarget) -> String {
        match target {
            LinkTarget::Note { path, url, id, .. } => {
                let fragment = id.as_ref().map(|id| format!("#{}", encode_part(id)));
                match fragment {
                    Some(fragment) if path == self.page => fragment,
                    Some(fragment) => format!("{url}{fragment}"),
                    None => url.to_string(),
                }
            }
            LinkTarget::Asset { url, .. } | LinkTarget::Folder { url } | LinkTarget::Host { url } => {
                url.clone()
            }
            LinkTarget::Withheld { .. } | LinkTarget::Broken => String::new(),
        }
    }

    fn show(&mut self, linked: &LinkedNote, note: &Note, at: u32, context: EmbedContext) {
        let link = &note.body.links[at as usize];
        let words = &self.state.site.options.words;
        let shown = linked.display_text(note, at, &words.withheld);
        match target(linked, at) {
            LinkTarget::Asset { url, media, .. } => self.asset(linked, note, link, url, *media),
            LinkTarget::Note { .. } | LinkTarget::Folder { .. } if context == EmbedContext::Link => {
                escape_into(&mut self.out, &shown);
            }
            LinkTarget::Note { path, url, .. } => self.embed(link, path, url, &shown, context),
            LinkTarget::Folder { url } | LinkTarget::Host { url } => self.link(url, &shown),
            LinkTarget::Withheld { .. } => {
                let (hint, text) = (escape(&words.withheld_hint), escape(&words.withheld));
                let _ = write!(self.out, "<span class=\"withheld\" title=\"{hint}\">{text}</span>");
            }
            LinkTarget::Broken => {
                let hint = escape(&words.broken_hint);
                let _ = write!(self.out, "<span class=\"broken\" title=\"{hint}\">{}</span>", escape(&shown));
            }
        }
    }

    fn link(&mut self, url: &str, shown: &str) {
        let _ = write!(self.out, "<a href=\"{}\">{}</a>", escape(url), escape(shown));
    }

    fn asset(&mut self, linked: &LinkedNote, note: &Note, link: &Link, url: &str, media: Media) {
        let url = escape(url);
        let withheld = &self.state.site.options.words.withheld;
        let parsed = |label: &Vec<Span>| join_spans(label, |at| linked.display_text(note, at, withheld));
        let label = link.label.as_ref().map(parsed);
        let name = link.target.rsplit('/').next().unwrap_or(&link.target);
        // A file name does not help a reader who cannot see the picture. An empty text marks the picture as decoration.
        let alt = match link.syntax {
            LinkSyntax::WikiEmbed => label.as_deref().unwrap_or(name),
            _ => label.as_deref().unwrap_or_default(),
        };
        let (label, size) = (escape(alt), size_attributes(link.size));
        let title = title_attribute(linked, note, link, withheld);
        let _ = match media {
            Media::Image => {
                write!(self.out, "<img src=\"{url}\" alt=\"{label}\"{title}{size} loading=\"lazy\">")
            }
            Media::Audio => write!(
                self.out,
                "<audio controls preload=\"none\" src=\"{url}\" aria-label=\"{label}\"></audio>"
            ),
            Media::Video => write!(
                self.out,
                "<video controls preload=\"metadata\" src=\"{url}\"{size} aria-label=\"{label}\"></video>"
            ),
            Media::Document => {
                let text = if alt.is_empty() { escape(name) } else { label };
                write!(self.out, "<a class=\"file\" href=\"{url}\"{title}>{text}</a>")
            }
        };
    }

    fn embed(&mut self, link: &Link, path: &Arc<str>, url: &str, shown: &str, context: EmbedContext) {
        let found = self.state.linked.get(path).zip(self.state.notes.get(path));
        let too_much =
            self.stack.len() > EMBED_DEPTH_MAX || self.count >= EMBEDS_MAX || self.out.len() > PAGE_BYTES_MAX;
        let fits = !too_much && context != EmbedContext::Line && !self.stack.contains(path);
        let Some((inner, entry)) = found.filter(|_| fits) else {
            // A note is linked instead of embedded if it would embed itself, exceeds a limit, or stands where no block
            // is allowed.
            return self.link(url, shown);
        };
        self.count += 1;
        self.shown.push(path.clone());
        let body = &entry.note.body;
        let all = (0, body.pieces.len());
        let (start, end) =
            link.fragment.as_deref().and_then(|fragment| body.section_of(fragment)).unwrap_or(all);
        let (inner, note) = (inner.clone(), entry.note.clone());
        // A paragraph cannot contain a block, so it ends here and begins again after the embed.
        let splits = context == EmbedContext::Paragraph;
        if splits && !self.drop_empty_paragraph() {
            self.out.push_str("</p>\n");
        }
        let _ = write!(
            self.out,
            "<div class=\"embed\"><p class=\"from\"><a href=\"{}\">{}</a></p>\n<div class=\"body\">\n",
            escape(url),
            escape(&inner.card.title)
        );
        let prefix = format!("embed:{}:", self.count);
        self.pieces(&inner, &note, start, end, &prefix);
        self.out.push_str(EMBED_END);
        if splits {
            self.out.push_str("<p>");
        }
    }

    /// Returns the output so far without trailing blanks and line breaks.
    fn trimmed_output(&self) -> &str {
        let mut out = self.out.trim_end();
        while let Some(rest) = out.strip_suffix("<br>") {
            out = rest.trim_end();
        }
        out
    }

    /// Tells whether the current paragraph is empty and follows an embed.
    fn follows_embed(&self) -> bool {
        self.trimmed_output().strip_suffix("<p>").is_some_and(|out| out.ends_with(EMBED_END))
    }

    /// Removes the current paragraph from the output if it is empty. Returns true if it was.
    fn drop_empty_paragraph(&mut self) -> bool {
        let kept = self.trimmed_output().strip_suffix("<p>").map(str::len);
        self.out.truncate(kept.unwrap_or(self.out.len()));
        kept.is_some()
    }
}

fn title_attribute(linked: &LinkedNote, note: &Note, link: &Link, withheld: &str) -> String {
    let parsed = |title: &Vec<Span>| join_spans(title, |at| linked.display_text(note, at, withheld));
    link.title.as_ref().map_or(String::new(), |title| format!(" title=\"{}\"", escape(&parsed(title))))
}

fn target(linked: &LinkedNote, at: u32) -> &LinkTarget {
    linked.targets.get(at as usize).unwrap_or(&LinkTarget::Broken)
}

fn closing(target: &LinkTarget) -> &'static str {
    match target {
        LinkTarget::Broken => "</span>",
        LinkTarget::Withheld { .. } => "",
        _ => "</a>",
    }
}
