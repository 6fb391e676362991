//! The parsed Markdown of a note: finished HTML with holes for everything that depends on the rest of the vault.
//!
//! A note is parsed into [`BodyPiece`]s when its bytes change. The targets of its links change more often, and then only
//! the holes are filled again (O1): renaming one note does not parse the Markdown of another.

/// The content of a note without its front matter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NoteBody {
    pub(crate) pieces: Vec<BodyPiece>,
    /// Links to other notes and to files of the vault, in order. Links to other sites are not in it; they are finished
    /// HTML.
    pub(crate) links: Vec<Link>,
    pub(crate) headings: Vec<Heading>,
    /// Ids of blocks (`^id`), each with the range of pieces that make up the block.
    pub(crate) blocks: Vec<(Box<str>, usize, usize)>,
    /// The visible text.
    pub(crate) text: Vec<Span>,
    /// The text of the first paragraph that is not blank.
    pub(crate) lead: Vec<Span>,
    /// True if the first block is a heading of level 1, so that the page needs no other title.
    pub(crate) has_title: bool,
    pub(crate) warnings: Vec<String>,
    /// Indexes into `headings` sorted by id, into `headings` sorted by key, and into `blocks` sorted by id. Each holds
    /// only the first of equal names.
    by_id: Vec<u32>,
    by_key: Vec<u32>,
    by_block: Vec<u32>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum BodyPiece {
    Html(Box<str>),
    /// HTML that the author wrote. An option of the site decides whether it stays HTML.
    Raw(Box<[Span]>),
    /// An id in this page. In an embed it gets a prefix, so that ids stay unique.
    Id(Box<str>),
    /// A line break in the source. An option of the site decides how it is shown.
    LineBreak,
    /// The start of `links[i]`. Its content follows, up to its `LinkEnd`.
    LinkStart(u32),
    LinkEnd(u32),
    /// `links[i]`, embedded here: an image or a note.
    Embed(u32, EmbedContext),
    /// The text of `links[i]` in a position where it cannot be a link.
    LinkText(u32),
}

/// The kind of content that is allowed at the position of an embed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EmbedContext {
    /// Blocks are allowed.
    Block,
    /// Text directly in a paragraph. Blocks are allowed if the paragraph is closed before them.
    Paragraph,
    /// Text within a heading or within markup such as emphasis. Only text and links are allowed.
    Line,
    /// Text within a link. Only text without links is allowed.
    Link,
}

/// A piece of text, or a link whose text depends on its target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Span {
    Text(String),
    Link(u32),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Link {
    pub(crate) syntax: LinkSyntax,
    /// The target without its fragment, decoded. Empty means this note.
    pub(crate) target: String,
    /// The heading or `^block`, decoded.
    pub(crate) fragment: Option<String>,
    /// The text that the author gave the link.
    pub(crate) label: Option<Vec<Span>>,
    pub(crate) title: Option<Vec<Span>>,
    /// Width and height of an image, in pixels.
    pub(crate) size: Option<(u32, Option<u32>)>,
}

impl Link {
    pub(crate) fn is_shown_in_place(&self) -> bool {
        matches!(self.syntax, LinkSyntax::WikiEmbed | LinkSyntax::Image)
    }

    /// Returns true for a real link, and false for text that may only name a note.
    pub(crate) fn is_link(&self) -> bool {
        !matches!(self.syntax, LinkSyntax::Named | LinkSyntax::Quoted)
    }

    /// Returns the text of the link if nothing must be hidden. `inner` gives the text of the links within its label.
    pub(crate) fn display_text(&self, inner: impl FnMut(u32) -> String) -> String {
        match (&self.label, &self.fragment) {
            (Some(label), _) => join_spans(label, inner),
            (None, None) => self.target.clone(),
            (None, Some(fragment)) if self.target.is_empty() => fragment.clone(),
            (None, Some(fragment)) => format!("{} › {fragment}", self.target),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LinkSyntax {
    /// `[[a]]`
    Wiki,
    /// `![[a]]`
    WikiEmbed,
    /// `[x](a.md)`
    Markdown,
    /// `![x](a.png)`
    Image,
    /// `[[a]]` in a position where no link is possible: in the text of another link, in an attribute, in front matter.
    Named,
    /// `[[a]]` that is plain text: in HTML, in math, or escaped. Its label is the text as written.
    Quoted,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Heading {
    pub(crate) level: u8,
    /// Unique in the note. It leaves out the text of links, so that it contains no name of an unpublished note.
    pub(crate) id: String,
    /// The key that is compared with the fragment of a link. It is made of the whole text of the heading.
    pub(crate) key: String,
    pub(crate) text: Vec<Span>,
    /// The range of pieces of its section, including the heading; `None` if the heading stands inside another block.
    pub(crate) section: Option<(usize, usize)>,
}

impl NoteBody {
    /// Returns the text of a link if nothing must be hidden.
    pub(crate) fn display_text(&self, at: u32) -> String {
        // The label of a link may contain names of other links. Those have no labels with further names in them, so one
        // level is enough.
        self.links[at as usize]
            .display_text(|inner| self.links[inner as usize].display_text(|_| String::new()))
    }

    /// Returns the id to which a fragment leads.
    pub(crate) fn id_of(&self, fragment: &str) -> Option<String> {
        if fragment.starts_with('^') {
            return self.block(fragment).map(|(id, ..)| id.to_string());
        }
        self.heading(fragment).map(|heading| heading.id.clone())
    }

    fn heading(&self, fragment: &str) -> Option<&Heading> {
        // `[[a#B#C]]` means heading C below B. Only the last part is compared.
        let last = fragment.rsplit('#').find(|part| !part.trim().is_empty())?;
        let key = crate::text::slug(last);
        let heading = |at: u32| &self.headings[at as usize];
        let exact = lookup(&self.by_id, last, |at| &heading(at).id);
        exact.or_else(|| lookup(&self.by_key, &key, |at| &heading(at).key)).map(heading)
    }

    /// Returns the links in the heading that a fragment names.
    pub(crate) fn links_of(&self, fragment: &str) -> impl Iterator<Item = &Link> {
        let heading = self.heading(fragment).filter(|_| !fragment.starts_with('^'));
        heading.into_iter().flat_map(|heading| &heading.text).filter_map(|span| match span {
            Span::Link(at) => Some(&self.links[*at as usize]),
            Span::Text(_) => None,
        })
    }

    fn block(&self, fragment: &str) -> Option<&(Box<str>, usize, usize)> {
        lookup(&self.by_block, fragment, |at| &self.blocks[at as usize].0).map(|at| &self.blocks[at as usize])
    }

    /// Builds the sorted indexes, once the body is complete. They keep the lookup of fragments fast: a note may link to
    /// each of its headings.
    pub(crate) fn build_indexes(&mut self) {
        self.by_id = sorted_indexes(self.headings.len(), |at| &self.headings[at as usize].id);
        self.by_key = sorted_indexes(self.headings.len(), |at| &self.headings[at as usize].key);
        self.by_block = sorted_indexes(self.blocks.len(), |at| &self.blocks[at as usize].0);
    }

    /// Returns the range of pieces that a fragment names.
    pub(crate) fn section_of(&self, fragment: &str) -> Option<(usize, usize)> {
        if fragment.starts_with('^') {
            return self.block(fragment).map(|(_, start, end)| (*start, *end));
        }
        self.heading(fragment)?.section
    }

    /// Returns all ids to which links can lead, each with its key.
    pub(crate) fn targets(&self) -> Vec<(&str, &str)> {
        let headings = self.headings.iter().map(|heading| (heading.id.as_str(), heading.key.as_str()));
        headings.chain(self.blocks.iter().map(|(id, ..)| (&**id, ""))).collect()
    }
}

/// Joins spans to a text. `link_text` gives the text of a link.
pub(crate) fn join_spans(spans: &[Span], mut link_text: impl FnMut(u32) -> String) -> String {
    let mut text = String::new();
    for span in spans {
        match span {
            Span::Text(part) => text.push_str(part),
            Span::Link(link) => text.push_str(&link_text(*link)),
        }
    }
    text
}

/// Returns the indexes of all names in the order of the names, the first index of each name only.
fn sorted_indexes<'a>(len: usize, name: impl Fn(u32) -> &'a str) -> Vec<u32> {
    let mut all: Vec<u32> = (0..len as u32).collect();
    // The sort is stable, so the first of equal names stays first.
    all.sort_by(|a, b| name(*a).cmp(name(*b)));
    all.dedup_by(|later, first| name(*later) == name(*first));
    all
}

fn lookup<'a>(sorted: &[u32], wanted: &str, name: impl Fn(u32) -> &'a str) -> Option<u32> {
    sorted.binary_search_by(|at| name(*at).cmp(wanted)).ok().map(|at| sorted[at])
}
