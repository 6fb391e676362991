//! Links, images and embeds: what leads out of the site is finished here, what leads into the vault becomes a
//! [`Link`] for the vault to resolve.

use comrak::Node;
use comrak::nodes::NodeValue;

use super::Walk;
use crate::body::{Link, Piece, Span, Syntax};
use crate::text::{decode, encode_address};

/// Schemes that a link may have. Everything else, `javascript:` first of all, is shown as text.
const SCHEMES: [&str; 13] = [
    "http", "https", "mailto", "tel", "sms", "geo", "xmpp", "irc", "ircs", "matrix", "magnet", "ftp", "sftp",
];

/// Pictures within the text. No SVG: as an image it is harmless, but it need not be one.
const DATA_IMAGES: [&str; 4] = ["data:image/png;", "data:image/jpeg;", "data:image/gif;", "data:image/webp;"];

/// How an open link ends.
pub(super) enum Open {
    /// `links[i]`.
    Vault(u32),
    /// With this tag.
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
    // Browsers drop these before they look for a scheme.
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

impl Walk {
    fn open(&mut self, link: Link) {
        let at = self.body.links.len() as u32;
        self.body.links.push(link);
        if self.open_links.is_empty() {
            self.body.text.push(Span::Link(at));
            self.fresh = true;
        }
        self.piece(Piece::Open(at));
        self.open_links.push(Open::Vault(at));
    }

    /// `[text](url)`.
    pub(super) fn enter_link(&mut self, node: Node<'_>, url: &str, title: &str) -> bool {
        match classify(url) {
            Address::Vault { target, fragment } => {
                let label = Some(text_of(node)).filter(|label| !label.trim().is_empty());
                let title = Some(title.to_owned()).filter(|title| !title.is_empty());
                self.open(Link { syntax: Syntax::Markdown, target, fragment, label, title, size: None });
            }
            Address::Outside => {
                self.html("<a class=\"outside\"");
                self.attribute("href", &encode_address(url.trim()));
                if !title.is_empty() {
                    self.attribute("title", title);
                }
                self.html(" rel=\"noopener\">");
                self.open_links.push(Open::Tag("</a>"));
            }
            Address::Unsafe => {
                self.body
                    .warnings
                    .push("a link has a scheme that is not allowed; it is shown as text".to_owned());
                self.html("<span class=\"broken\">");
                self.open_links.push(Open::Tag("</span>"));
            }
        }
        true
    }

    /// `[[target#fragment|label]]`, `![[target|200x100]]`.
    pub(super) fn enter_wikilink(&mut self, node: Node<'_>, url: &str, embed: bool) -> bool {
        let shown = text_of(node);
        let is_outside = url.contains("://") && matches!(classify(url), Address::Outside);
        if is_outside && !embed {
            return self.enter_link(node, url, "");
        }
        let (target, fragment) = match url.split_once('#') {
            Some((target, fragment)) => (target, Some(fragment.trim().to_owned())),
            None => (url, None),
        };
        let label = Some(shown.trim()).filter(|label| !label.is_empty() && *label != url.trim());
        let (label, size) = match label {
            Some(label) if embed => size_of(label),
            Some(label) => (Some(label.to_owned()), None),
            None => (None, None),
        };
        let syntax = if embed { Syntax::WikiEmbed } else { Syntax::Wiki };
        let fragment = fragment.filter(|fragment| !fragment.is_empty());
        let link = Link { syntax, target: target.trim().to_owned(), fragment, label, title: None, size };
        if embed {
            self.show(link);
            return false;
        }
        let label = link.shown();
        self.open(link);
        self.text(&label);
        self.leave_link();
        false
    }

    fn show(&mut self, link: Link) {
        let at = self.body.links.len() as u32;
        self.body.links.push(link);
        self.piece(Piece::Show(at));
    }

    pub(super) fn leave_link(&mut self) {
        match self.open_links.pop() {
            Some(Open::Vault(at)) => self.piece(Piece::Close(at)),
            Some(Open::Tag(tag)) => self.html(tag),
            None => {}
        }
    }

    /// `![alt|200](url)`.
    pub(super) fn image(&mut self, node: Node<'_>, url: &str, title: &str) {
        let alt = text_of(node);
        let (label, size) = match alt.rsplit_once('|') {
            Some((alt, size)) => match size_of(size) {
                (None, Some(size)) => (Some(alt.to_owned()), Some(size)),
                _ => (Some(alt.to_owned() + "|" + size), None),
            },
            None => (Some(alt), None),
        };
        let title = Some(title.to_owned()).filter(|title| !title.is_empty());
        let is_data = DATA_IMAGES.iter().any(|kind| url.starts_with(kind));
        match classify(url) {
            Address::Vault { target, fragment } => {
                let label = label.filter(|label| !label.trim().is_empty());
                self.show(Link { syntax: Syntax::Image, target, fragment, label, title, size });
            }
            Address::Outside | Address::Unsafe if is_data || is_web(url) => {
                self.html("<img");
                self.attribute("src", &encode_address(url.trim()));
                self.attribute("alt", label.as_deref().unwrap_or_default());
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
                self.text(label.as_deref().unwrap_or_default());
            }
        }
    }
}

fn is_web(url: &str) -> bool {
    let url = url.trim().to_ascii_lowercase();
    url.starts_with("https://") || url.starts_with("http://") || url.starts_with("//")
}

/// A label that is a size, or a label.
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

/// The text in a node, without marks.
pub(super) fn text_of(node: Node<'_>) -> String {
    let mut text = String::new();
    for node in node.descendants() {
        match &node.data().value {
            NodeValue::Text(part) => text.push_str(part),
            NodeValue::Code(code) => text.push_str(&code.literal),
            NodeValue::Math(math) => text.push_str(&math.literal),
            NodeValue::SoftBreak | NodeValue::LineBreak => text.push(' '),
            _ => {}
        }
    }
    text
}

/// Takes ` ^id` from the end of a paragraph.
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
