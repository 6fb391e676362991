//! A note's Markdown, read once: finished HTML with holes where the vault has a say.
//!
//! A note is read and turned into [`Piece`]s when its bytes change. What its links lead to changes more often, and then
//! only the holes are filled again (O1): no Markdown is parsed because another note was renamed.

/// What a note says, apart from its front matter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Body {
    pub(crate) pieces: Vec<Piece>,
    /// Links to other notes and to files of the vault, in order. Links to other sites are finished HTML.
    pub(crate) links: Vec<Link>,
    pub(crate) headings: Vec<Heading>,
    /// Ids of blocks (`^id`), with the pieces between which the block stands.
    pub(crate) blocks: Vec<(Box<str>, usize, usize)>,
    /// The text that a reader sees.
    pub(crate) text: Vec<Span>,
    /// The text of the first paragraph that has one.
    pub(crate) lead: Vec<Span>,
    /// The first block is a heading of level 1, so the page needs no other.
    pub(crate) has_title: bool,
    pub(crate) warnings: Vec<String>,
    /// Headings by id, headings by key, blocks by id: the first of each, sorted.
    by_id: Vec<u32>,
    by_key: Vec<u32>,
    by_block: Vec<u32>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    Html(Box<str>),
    /// HTML that the author wrote: an option of the site decides whether it stays.
    Raw(Box<[Span]>),
    /// An id of this page. In an embed it gets a prefix, so that no two things have one id.
    Id(Box<str>),
    /// A line break in the source: an option decides what it is.
    Break,
    /// `links[i]` begins; what it shows is between this and its end.
    Open(u32),
    Close(u32),
    /// `links[i]`, shown in place: an image, a note.
    Show(u32, Place),
    /// The words of `links[i]`, which is no link here.
    Say(u32),
}

/// What may stand where something is shown in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Blocks.
    Block,
    /// A paragraph's own text: blocks, if the paragraph ends before them.
    Paragraph,
    /// Text within a heading or within marks of its own.
    Line,
    /// Text without links: within a link.
    Link,
}

/// A piece of text, or what a link shows, which depends on where it leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Span {
    Text(String),
    Link(u32),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Link {
    pub(crate) syntax: Syntax,
    /// Without fragment, decoded; empty: this note.
    pub(crate) target: String,
    /// Heading or `^block`, decoded.
    pub(crate) fragment: Option<String>,
    /// What its author wants shown.
    pub(crate) label: Option<Vec<Span>>,
    pub(crate) title: Option<Vec<Span>>,
    /// Of an image: width and height.
    pub(crate) size: Option<(u32, Option<u32>)>,
}

impl Link {
    pub(crate) fn is_shown_in_place(&self) -> bool {
        matches!(self.syntax, Syntax::WikiEmbed | Syntax::Image)
    }

    /// Whether it leads anywhere, or is text that may name a note.
    pub(crate) fn is_link(&self) -> bool {
        !matches!(self.syntax, Syntax::Named | Syntax::Quoted)
    }

    /// What it shows where it is not to be hidden, `inner` being what the links in its label show.
    pub(crate) fn shown(&self, inner: impl FnMut(u32) -> String) -> String {
        match (&self.label, &self.fragment) {
            (Some(label), _) => joined(label, inner),
            (None, None) => self.target.clone(),
            (None, Some(fragment)) if self.target.is_empty() => fragment.clone(),
            (None, Some(fragment)) => format!("{} › {fragment}", self.target),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Syntax {
    /// `[[a]]`
    Wiki,
    /// `![[a]]`
    WikiEmbed,
    /// `[x](a.md)`
    Markdown,
    /// `![x](a.png)`
    Image,
    /// `[[a]]` where there can be no link: in the text of another, in an attribute, in front matter.
    Named,
    /// `[[a]]` that is text: in HTML, in math, escaped. Its label is what stands there.
    Quoted,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Heading {
    pub(crate) level: u8,
    /// Unique in the note. Made without what links show, so that no name of an unpublished note is in it.
    pub(crate) id: String,
    /// What a link's fragment is compared with: made with all of its text.
    pub(crate) key: String,
    pub(crate) text: Vec<Span>,
    /// The pieces of its section, itself included; none if it stands inside another block.
    pub(crate) section: Option<(usize, usize)>,
}

impl Body {
    /// What a link shows where nothing is to be hidden.
    pub(crate) fn shown(&self, at: u32) -> String {
        // In the label of a link there may be the names of others, which have no such label.
        self.links[at as usize].shown(|inner| self.links[inner as usize].shown(|_| String::new()))
    }

    /// The id that a link's fragment leads to.
    pub(crate) fn id_of(&self, fragment: &str) -> Option<String> {
        if fragment.starts_with('^') {
            return self.block(fragment).map(|(id, ..)| id.to_string());
        }
        self.heading(fragment).map(|heading| heading.id.clone())
    }

    fn heading(&self, fragment: &str) -> Option<&Heading> {
        // `[[a#B#C]]` is C below B; the last is enough.
        let last = fragment.rsplit('#').find(|part| !part.trim().is_empty())?;
        let key = crate::text::slug(last);
        let heading = |at: u32| &self.headings[at as usize];
        let exact = found(&self.by_id, last, |at| &heading(at).id);
        exact.or_else(|| found(&self.by_key, &key, |at| &heading(at).key)).map(heading)
    }

    /// Links in the heading that a fragment names.
    pub(crate) fn links_of(&self, fragment: &str) -> impl Iterator<Item = &Link> {
        let heading = self.heading(fragment).filter(|_| !fragment.starts_with('^'));
        heading.into_iter().flat_map(|heading| &heading.text).filter_map(|span| match span {
            Span::Link(at) => Some(&self.links[*at as usize]),
            Span::Text(_) => None,
        })
    }

    fn block(&self, fragment: &str) -> Option<&(Box<str>, usize, usize)> {
        found(&self.by_block, fragment, |at| &self.blocks[at as usize].0).map(|at| &self.blocks[at as usize])
    }

    /// To be called when it is complete: a note may have as many links to its headings as it has headings.
    pub(crate) fn index(&mut self) {
        self.by_id = sorted(self.headings.len(), |at| &self.headings[at as usize].id);
        self.by_key = sorted(self.headings.len(), |at| &self.headings[at as usize].key);
        self.by_block = sorted(self.blocks.len(), |at| &self.blocks[at as usize].0);
    }

    /// The pieces that a fragment names.
    pub(crate) fn section_of(&self, fragment: &str) -> Option<(usize, usize)> {
        if fragment.starts_with('^') {
            return self.block(fragment).map(|(_, start, end)| (*start, *end));
        }
        self.heading(fragment)?.section
    }

    /// All ids that links can lead to.
    pub(crate) fn targets(&self) -> Vec<(&str, &str)> {
        let headings = self.headings.iter().map(|heading| (heading.id.as_str(), heading.key.as_str()));
        headings.chain(self.blocks.iter().map(|(id, ..)| (&**id, ""))).collect()
    }
}

/// Spans as text, links through `shown`.
pub(crate) fn joined(spans: &[Span], mut shown: impl FnMut(u32) -> String) -> String {
    let mut text = String::new();
    for span in spans {
        match span {
            Span::Text(part) => text.push_str(part),
            Span::Link(link) => text.push_str(&shown(*link)),
        }
    }
    text
}

/// Positions in the order of their names, the first of each name.
fn sorted<'a>(len: usize, name: impl Fn(u32) -> &'a str) -> Vec<u32> {
    let mut all: Vec<u32> = (0..len as u32).collect();
    // Stable, so that the first of a name comes first.
    all.sort_by(|a, b| name(*a).cmp(name(*b)));
    all.dedup_by(|later, first| name(*later) == name(*first));
    all
}

fn found<'a>(sorted: &[u32], wanted: &str, name: impl Fn(u32) -> &'a str) -> Option<u32> {
    sorted.binary_search_by(|at| name(*at).cmp(wanted)).ok().map(|at| sorted[at])
}
