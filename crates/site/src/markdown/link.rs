//! Links, images and embeds. Links to other sites are finished here; links into the vault become a [`Link`] that the
//! vault resolves.

use comrak::Node;
use comrak::nodes::NodeValue;

use super::Walk;
use super::wikilinks::{MarkKind, MarkSource, MarkedPart, ParsedWikilink, parts};
use crate::body::{BodyPiece, EmbedContext, Link, LinkSyntax, Span};
use crate::text::{decode, encode_address};

/// Schemes that a link may have. A link with any other scheme, above all `javascript:`, is shown as text.
const SCHEMES: [&str; 13] = [
    "http", "https", "mailto", "tel", "sms", "geo", "xmpp", "irc", "ircs", "matrix", "magnet", "ftp", "sftp",
];

/// Data URLs that an image may have. SVG is excluded: it is harmless as an image, but a browser may open it as a
/// document.
const DATA_IMAGES: [&str; 4] = ["data:image/png;", "data:image/jpeg;", "data:image/gif;", "data:image/webp;"];

/// The end of an open link.
pub(super) enum OpenLink {
    /// The link is `links[i]`.
    Vault(u32),
    /// The link ends with this HTML tag.
    Tag(&'static str),
}

enum Address {
    /// On another site.
    Outside,
    /// With a scheme that is not allowed.
    Unsafe,
    /// A path, a fragment, or both.
    Vault { target: String, fragment: Option<String> },
}

fn classify(url: &str) -> Address {
    // Browsers drop control characters and blanks before they look for a scheme.
    let seen: String = url.chars().filter(|c| !c.is_control() && !c.is_whitespace()).collect();
    if seen.starts_with("//") || seen.starts_with("\\\\") || seen.starts_with("/\\") {
        return Address::Outside;
    }
    if let Some((scheme, _)) = seen.split_once(':') {
        let is_path = scheme.contains(['/', '?', '#', '\\']);
        if !is_path {
            let scheme = scheme.to_ascii_lowercase();
            return if SCHEMES.contains(&scheme.as_str()) { Address::Outside } else { Address::Unsafe };
        }
    }
    let (path, fragment) = match url.split_once('#') {
        Some((path, fragment)) => (path, Some(fragment)),
        None => (url, None),
    };
    let path = path.split_once('?').map_or(path, |(path, _)| path);
    let decoded = |text: &str| decode(text).unwrap_or_else(|| text.to_owned());
    Address::Vault {
        target: decoded(path.trim()),
        fragment: fragment.map(decoded).filter(|fragment| !fragment.trim().is_empty()),
    }
}

impl Walk<'_> {
    /// Adds the text of a link to the visible text.
    pub(super) fn link_span(&mut self, at: u32) {
        // The text of a link into the vault belongs to that link.
        if !self.open_links.iter().any(|open| matches!(open, OpenLink::Vault(_))) {
            self.body.text.push(Span::Link(at));
            self.fresh = true;
        }
    }

    fn open(&mut self, link: Link) {
        let at = self.body.links.len() as u32;
        self.body.links.push(link);
        self.link_span(at);
        self.piece(BodyPiece::LinkStart(at));
        self.open_links.push(OpenLink::Vault(at));
    }

    /// Handles the start of `[text](url)`.
    pub(super) fn enter_link(&mut self, node: Node<'_>, url: &str, title: &str) -> bool {
        match classify(&self.address(url)) {
            Address::Vault { target, fragment } => {
                let label = Some(self.text_of(node)).filter(|label| !is_blank(label));
                let title = Some(self.name_spans(title)).filter(|title| !title.is_empty());
                self.open(Link { syntax: LinkSyntax::Markdown, target, fragment, label, title, size: None });
            }
            Address::Outside => {
                let title = self.name_spans(title);
                let url = self.outside(url);
                self.enter_outside(&url, &title);
            }
            Address::Unsafe => {
                self.body
                    .warnings
                    .push("a link has a scheme that is not allowed; it is shown as text".to_owned());
                self.html("<span class=\"broken\">");
                self.open_links.push(OpenLink::Tag("</span>"));
            }
        }
        true
    }

    fn enter_outside(&mut self, url: &[Span], title: &[Span]) {
        self.html("<a class=\"outside\"");
        self.attribute("href", url);
        if !title.is_empty() {
            self.attribute("title", title);
        }
        self.html(" rel=\"noopener\">");
        self.open_links.push(OpenLink::Tag("</a>"));
    }

    /// Encodes an address of another site.
    fn outside(&mut self, url: &str) -> Vec<Span> {
        let mut spans = self.spans(url.trim(), |item| item.quoted(encode_address(item.source)));
        for span in &mut spans {
            if let Span::Text(text) = span {
                *text = encode_address(text);
            }
        }
        spans
    }

    /// Returns an address or the name of a language with its wikilinks replaced by `…`, since neither can contain one.
    pub(super) fn address(&mut self, url: &str) -> String {
        let parsed = |part| match part {
            MarkedPart::Text(text) => text,
            MarkedPart::Mark(MarkSource { kind: MarkKind::Literal, source }) => source,
            MarkedPart::Mark(_) => "…",
        };
        parts(url, self.items).map(parsed).collect()
    }

    /// Handles `[[target#fragment|label]]`.
    pub(super) fn wikilink(&mut self, item: &MarkSource<'_>) {
        let parsed = item.parsed();
        if parsed.address.contains("://") && matches!(classify(&parsed.address), Address::Outside) {
            self.enter_outside(&[Span::Text(encode_address(parsed.address.trim()))], &[]);
            self.text(parsed.label.as_deref().filter(|label| !label.is_empty()).unwrap_or(&parsed.address));
        } else {
            let link = from_wikilink(&parsed, false);
            let label = link.display_text(|_| String::new());
            self.open(link);
            self.text(&label);
        }
        self.leave_link();
    }

    /// Handles `![[target|200x100]]`.
    pub(super) fn embed(&mut self, item: &MarkSource<'_>) {
        self.add_embed(from_wikilink(&item.parsed(), true));
    }

    fn add_embed(&mut self, link: Link) {
        let at = self.body.links.len() as u32;
        self.body.links.push(link);
        let context = match () {
            () if !self.open_links.is_empty() => EmbedContext::Link,
            () if self.lines > 0 => EmbedContext::Line,
            () if self.in_paragraph => EmbedContext::Paragraph,
            () => EmbedContext::Block,
        };
        self.piece(BodyPiece::Embed(at, context));
    }

    /// Returns the text of a node without Markdown syntax.
    fn text_of(&mut self, node: Node<'_>) -> Vec<Span> {
        let mut spans: Vec<Span> = Vec::new();
        for node in node.descendants() {
            let found = match &node.data().value {
                NodeValue::Text(part) => self.name_spans(part),
                NodeValue::Math(math) => self.name_spans(&math.literal),
                NodeValue::Code(code) => {
                    vec![Span::Text(self.line_of_code(&code.literal))]
                }
                NodeValue::SoftBreak | NodeValue::LineBreak => vec![Span::Text(" ".to_owned())],
                _ => continue,
            };
            for span in found {
                match (spans.last_mut(), span) {
                    (Some(Span::Text(last)), Span::Text(text)) => last.push_str(&text),
                    (_, span) => spans.push(span),
                }
            }
        }
        spans
    }

    pub(super) fn leave_link(&mut self) {
        match self.open_links.pop() {
            Some(OpenLink::Vault(at)) => self.piece(BodyPiece::LinkEnd(at)),
            Some(OpenLink::Tag(tag)) => self.html(tag),
            None => {}
        }
    }

    /// Handles `![alt|200](url)`.
    pub(super) fn image(&mut self, node: Node<'_>, url: &str, title: &str) {
        let mut alt = self.text_of(node);
        let mut size = None;
        if let Some(Span::Text(last)) = alt.last_mut()
            && let Some((before, after)) = last.rsplit_once('|')
            && let (None, Some(found)) = size_of(after)
        {
            *last = before.to_owned();
            size = Some(found);
        }
        let title = Some(self.name_spans(title)).filter(|title| !title.is_empty());
        let is_data = DATA_IMAGES.iter().any(|kind| url.starts_with(kind));
        match classify(&self.address(url)) {
            Address::Vault { target, fragment } => {
                let label = Some(alt).filter(|label| !is_blank(label));
                self.add_embed(Link { syntax: LinkSyntax::Image, target, fragment, label, title, size });
            }
            Address::Outside | Address::Unsafe if is_data || is_web(url) => {
                self.html("<img");
                let url = self.outside(url);
                self.attribute("src", &url);
                self.attribute("alt", &alt);
                if let Some(title) = &title {
                    self.attribute("title", title);
                }
                self.html(&size_attributes(size));
                self.html(" loading=\"lazy\" referrerpolicy=\"no-referrer\">");
            }
            _ => {
                self.body
                    .warnings
                    .push("an image has an address that is not allowed; its text is shown".to_owned());
                for span in alt {
                    match span {
                        Span::Text(text) => self.text(&text),
                        Span::Link(at) => self.write_text_of(at),
                    }
                }
            }
        }
    }
}

/// Returns the link that a wikilink denotes.
pub(super) fn from_wikilink(parsed: &ParsedWikilink, embed: bool) -> Link {
    let (target, fragment) = match parsed.address.split_once('#') {
        Some((target, fragment)) => (target, Some(fragment.trim().to_owned())),
        None => (parsed.address.as_str(), None),
    };
    let label = parsed.label.as_deref().filter(|label| !label.is_empty() && *label != parsed.address);
    let (label, size) = match label {
        Some(label) if embed => size_of(label),
        Some(label) => (Some(label.to_owned()), None),
        None => (None, None),
    };
    Link {
        syntax: if embed { LinkSyntax::WikiEmbed } else { LinkSyntax::Wiki },
        target: target.trim().to_owned(),
        fragment: fragment.filter(|fragment| !fragment.is_empty()),
        label: label.map(|label| vec![Span::Text(label)]),
        title: None,
        size,
    }
}

pub(super) fn is_blank(spans: &[Span]) -> bool {
    spans.iter().all(|span| matches!(span, Span::Text(text) if text.trim().is_empty()))
}

fn is_web(url: &str) -> bool {
    let url = url.trim().to_ascii_lowercase();
    url.starts_with("https://") || url.starts_with("http://") || url.starts_with("//")
}

/// Splits a label: if it is a size such as `200` or `200x100`, returns the size, otherwise the label.
fn size_of(label: &str) -> (Option<String>, Option<(u32, Option<u32>)>) {
    let number = |text: &str| text.trim().parse::<u32>().ok().filter(|number| (1..=10_000).contains(number));
    let size = match label.split_once('x') {
        Some((width, height)) => number(width).and_then(|width| Some((width, Some(number(height)?)))),
        None => number(label).map(|width| (width, None)),
    };
    match size {
        Some(size) => (None, Some(size)),
        None => (Some(label.to_owned()), None),
    }
}

pub(crate) fn size_attributes(size: Option<(u32, Option<u32>)>) -> String {
    match size {
        Some((width, Some(height))) => format!(" width=\"{width}\" height=\"{height}\""),
        Some((width, None)) => format!(" width=\"{width}\""),
        None => String::new(),
    }
}

/// Removes ` ^id` from the end of a paragraph and returns the id.
pub(super) fn take_block_id(paragraph: Node<'_>) -> Option<String> {
    let last = paragraph.last_child()?;
    let mut data = last.data_mut();
    let NodeValue::Text(text) = &mut data.value else { return None };
    let (before, id) = text.rsplit_once(" ^")?;
    let is_id =
        !id.is_empty() && id.len() <= 100 && id.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
    if !is_id {
        return None;
    }
    let (before, id) = (before.trim_end().to_owned(), id.to_owned());
    *text = before.into();
    Some(id)
}
