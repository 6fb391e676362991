//! Parses Markdown into a [`NoteBody`]: CommonMark with tables, strikethrough, task lists, autolinks, footnotes, callouts,
//! `==marks==`, math as text, wikilinks, embeds and `#tags`. Wikilinks are found before the Markdown parser runs: see
//! [`wikilinks`].
//!
//! The tree is walked with an explicit stack, so that no depth of nesting can overflow the thread's stack.

mod bare_names;
mod inline;
mod link;
mod wikilinks;

use std::collections::{BTreeSet, HashMap};

use comrak::nodes::{CalloutFold, ListType, NodeValue, TableAlignment};
use comrak::{Arena, Node, Options};

use crate::body::{BodyPiece, Heading, NoteBody, Span};
use crate::note::Tags;
use crate::text::{escape_into, slug};
use wikilinks::MarkSource;

pub(crate) use inline::is_tag;
pub(crate) use link::size_attributes;

/// Parses the text of a note. Front matter and comments must be removed already.
pub(crate) fn read(text: &str, tags: &mut Tags) -> NoteBody {
    let (marked, items) = wikilinks::mark(text);
    let arena = Arena::new();
    let root = comrak::parse_document(&arena, &marked, &options());
    let mut walk = Walk {
        items: &items,
        originals_left: ORIGINALS_TIMES_MAX.saturating_mul(text.len()),
        tags,
        body: NoteBody::default(),
        out: String::new(),
        open_links: Vec::new(),
        fresh: false,
        ids: BTreeSet::new(),
        next_ids: HashMap::new(),
        started: Vec::new(),
        alignments: Vec::new(),
        column: 0,
        in_table_head: false,
        in_cell: false,
        in_paragraph: false,
        lines: 0,
        footnotes: 0,
        content_end: None,
        block_id: None,
    };
    walk.body.has_title = starts_with_title(root);
    walk.walk(root);
    walk.finish()
}

fn options() -> Options<'static> {
    let mut options = Options::default();
    let extension = &mut options.extension;
    extension.strikethrough = true;
    extension.table = true;
    extension.autolink = true;
    extension.tasklist = true;
    extension.footnotes = true;
    extension.ofm_callouts = true;
    extension.math_dollars = true;
    extension.math_code = true;
    extension.highlight = true;
    options.parse.relaxed_tasklist_matching = true;
    // The parser reports escaped characters, so that `\#` is not taken for a tag.
    options.parse.escaped_char_spans = true;
    options
}

fn starts_with_title(root: Node<'_>) -> bool {
    let first = root.first_child();
    first.is_some_and(|node| matches!(node.data().value, NodeValue::Heading(heading) if heading.level == 1))
}

/// Limits the total length of expanded marks, as a multiple of the length of the text. The parser limits its own
/// expansions (the title of a reference appears wherever it is used), but it sees only the short mark and not the text
/// that replaces it.
const ORIGINALS_TIMES_MAX: usize = 4;

struct Walk<'t> {
    /// The originals of the marks in the text.
    items: &'t [MarkSource<'t>],
    /// Bytes of originals that may still be written.
    originals_left: usize,
    tags: &'t mut Tags,
    body: NoteBody,
    /// Finished HTML that is not in a piece yet.
    out: String,
    /// The open links, innermost last.
    open_links: Vec<link::OpenLink>,
    /// True if the next text begins a new span.
    fresh: bool,
    ids: BTreeSet<String>,
    /// For each base id, the number to try next for a duplicate heading.
    next_ids: HashMap<String, usize>,
    /// Start of each open heading or paragraph, as index of a piece and of a span.
    started: Vec<(usize, usize)>,
    alignments: Vec<TableAlignment>,
    column: usize,
    in_table_head: bool,
    in_cell: bool,
    /// True inside a `<p>`.
    in_paragraph: bool,
    /// Number of open headings, callout titles and inline markup, in which no block can stand.
    lines: usize,
    footnotes: usize,
    /// Index of the piece at which the text ends and the footnotes begin.
    content_end: Option<usize>,
    block_id: Option<String>,
}

enum NodeVisit<'a> {
    Enter(Node<'a>),
    Leave(Node<'a>),
}

impl Walk<'_> {
    fn walk<'a>(&mut self, root: Node<'a>) {
        let mut stack = vec![NodeVisit::Enter(root)];
        while let Some(step) = stack.pop() {
            match step {
                NodeVisit::Leave(node) => self.leave(node),
                NodeVisit::Enter(node) => {
                    if self.enter(node) {
                        stack.push(NodeVisit::Leave(node));
                        stack.extend(node.reverse_children().map(NodeVisit::Enter));
                    }
                }
            }
        }
    }

    fn finish(mut self) -> NoteBody {
        self.cut();
        let end = self.content_end.unwrap_or(self.body.pieces.len());
        let headings = &mut self.body.headings;
        // The start of the next section of each level, in a walk from the end.
        let mut nexts = [end; 7];
        for heading in headings.iter_mut().rev() {
            let level = usize::from(heading.level.min(6));
            if let Some(section) = &mut heading.section {
                section.1 = nexts[level].max(section.0);
                nexts[level..].fill(section.0);
            }
        }
        self.body.build_indexes();
        self.body
    }

    /// Ends the current piece of HTML, so that a new one begins. Returns the number of pieces.
    fn cut(&mut self) -> usize {
        if !self.out.is_empty() {
            self.body.pieces.push(BodyPiece::Html(std::mem::take(&mut self.out).into()));
        }
        self.body.pieces.len()
    }

    fn piece(&mut self, piece: BodyPiece) {
        self.cut();
        self.body.pieces.push(piece);
    }

    fn html(&mut self, html: &str) {
        self.out.push_str(html);
    }

    fn text(&mut self, text: &str) {
        escape_into(&mut self.out, text);
        self.span(text);
    }

    /// Adds text to the visible text, but not to the HTML.
    fn span(&mut self, text: &str) {
        // The text of a link into the vault belongs to the link, not to the surrounding text.
        if self.open_links.iter().any(|open| matches!(open, link::OpenLink::Vault(_))) {
            return;
        }
        match self.body.text.last_mut() {
            Some(Span::Text(last)) if !self.fresh => last.push_str(text),
            _ => self.body.text.push(Span::Text(text.to_owned())),
        }
        self.fresh = false;
    }

    fn start_block(&mut self) {
        let at = self.cut();
        self.fresh = true;
        self.started.push((at, self.body.text.len()));
    }

    /// Writes an id attribute. The id is a hole, because an embed needs another id.
    fn id(&mut self, id: &str) {
        self.html(" id=\"");
        self.piece(BodyPiece::Id(id.into()));
        self.html("\"");
    }

    fn reference(&mut self, id: &str) {
        self.html(" href=\"#");
        self.piece(BodyPiece::Id(id.into()));
        self.html("\"");
    }

    /// Handles the start of a node. Returns true if its children and its end must be visited too.
    fn enter(&mut self, node: Node<'_>) -> bool {
        let value = node.data().value.clone();
        match value {
            NodeValue::BlockQuote | NodeValue::MultilineBlockQuote(_) => self.html("<blockquote>\n"),
            NodeValue::List(list) => match list.list_type {
                ListType::Bullet if list.is_task_list => self.html("<ul class=\"tasks\">\n"),
                ListType::Bullet => self.html("<ul>\n"),
                ListType::Ordered if list.start == 1 => self.html("<ol>\n"),
                ListType::Ordered => self.html(&format!("<ol start=\"{}\">\n", list.start)),
            },
            NodeValue::Item(_) => self.html("<li>"),
            NodeValue::TaskItem(task) => {
                let checked = if task.symbol.is_some() { " checked" } else { "" };
                self.html(&format!("<li class=\"task\"><input type=\"checkbox\" disabled{checked}> "));
            }
            NodeValue::CodeBlock(code) => {
                let column = node.data().sourcepos.start.column.saturating_sub(1);
                self.code_block(&code.info, &code.literal, column);
            }
            NodeValue::HtmlBlock(html) => self.raw(&html.literal, true),
            NodeValue::Paragraph => self.enter_paragraph(node),
            NodeValue::Heading(_) => {
                self.lines += 1;
                self.start_block();
            }
            NodeValue::ThematicBreak => self.html("<hr>\n"),
            NodeValue::FootnoteDefinition(_) => self.enter_footnote(),
            NodeValue::Callout(callout) => self.enter_callout(node, &callout),
            NodeValue::CalloutTitle => self.lines += 1,
            NodeValue::Table(table) => {
                self.alignments = table.alignments.clone();
                self.html("<div class=\"table\" tabindex=\"0\"><table>\n");
            }
            NodeValue::TableRow(is_head) => {
                self.column = 0;
                self.in_table_head = is_head;
                self.html(if is_head { "<thead>\n<tr>" } else { "<tr>" });
            }
            NodeValue::TableCell => {
                let class = match self.alignments.get(self.column) {
                    Some(TableAlignment::Center) => " class=\"center\"",
                    Some(TableAlignment::Right) => " class=\"right\"",
                    _ => "",
                };
                self.column += 1;
                self.in_cell = true;
                let name = if self.in_table_head { "th scope=\"col\"" } else { "td" };
                self.html(&format!("<{name}{class}>"));
            }
            _ => return self.enter_inline(node, value),
        }
        true
    }

    fn leave(&mut self, node: Node<'_>) {
        let value = node.data().value.clone();
        match value {
            NodeValue::BlockQuote | NodeValue::MultilineBlockQuote(_) => self.html("</blockquote>\n"),
            NodeValue::List(list) => self.html(match list.list_type {
                ListType::Bullet => "</ul>\n",
                ListType::Ordered => "</ol>\n",
            }),
            NodeValue::Item(_) | NodeValue::TaskItem(_) => {
                self.html("</li>\n");
                self.span("\n");
            }
            NodeValue::Paragraph => self.leave_paragraph(node),
            NodeValue::Heading(heading) => self.leave_heading(node, heading.level),
            NodeValue::FootnoteDefinition(_) => {
                self.html("<a class=\"back\"");
                let id = format!("fnref:{}", self.footnotes);
                self.reference(&id);
                self.html(" aria-label=\"Back to the text\">↩\u{fe0e}</a></li>\n");
                let is_last = node.next_sibling().is_none();
                self.html(if is_last { "</ol></section>\n" } else { "" });
            }
            NodeValue::Callout(callout) => {
                self.html(if callout.fold == CalloutFold::None { "</div>\n" } else { "</details>\n" });
            }
            NodeValue::CalloutTitle => {
                self.lines -= 1;
                let folds = node.parent().is_some_and(
                    |up| matches!(&up.data().value, NodeValue::Callout(up) if up.fold != CalloutFold::None),
                );
                self.html(if folds { "</summary>\n" } else { "</p>\n" });
            }
            NodeValue::Table(_) => self.html("</tbody></table></div>\n"),
            NodeValue::TableRow(is_head) => {
                self.html(if is_head { "</tr>\n</thead>\n<tbody>\n" } else { "</tr>\n" });
                self.span("\n");
            }
            NodeValue::TableCell => {
                self.in_cell = false;
                self.html(if self.in_table_head { "</th>" } else { "</td>" });
                self.span(" ");
            }
            _ => self.leave_inline(value),
        }
    }

    fn code_block(&mut self, info: &str, code: &str, column: usize) {
        let info = self.address(info);
        let code = self.restore_marks(code, |item| item.lines(column));
        let language = info.split([' ', ',', '\t']).next().unwrap_or_default();
        self.html("<pre tabindex=\"0\"><code");
        if !language.is_empty() {
            self.html(" class=\"language-");
            escape_into(&mut self.out, language);
            self.html("\"");
        }
        self.html(">");
        self.text(&code);
        self.html("</code></pre>\n");
    }

    fn enter_footnote(&mut self) {
        if self.footnotes == 0 {
            self.content_end = Some(self.cut());
            self.html("<section class=\"footnotes\" aria-label=\"Footnotes\"><ol>\n");
        }
        self.footnotes += 1;
        self.html("<li");
        self.id(&format!("fn:{}", self.footnotes));
        self.html(">");
    }

    /// Tells whether a paragraph gets no `<p>`: in a tight list, or as the title of a callout.
    fn is_bare(node: Node<'_>) -> bool {
        let Some(parent) = node.parent() else { return false };
        if matches!(parent.data().value, NodeValue::CalloutTitle) {
            return true;
        }
        let list = parent.parent();
        list.is_some_and(|list| matches!(&list.data().value, NodeValue::List(list) if list.tight))
    }

    fn enter_paragraph(&mut self, node: Node<'_>) {
        self.start_block();
        self.block_id = link::take_block_id(node);
        let id = self.block_id.clone();
        self.in_paragraph = !Self::is_bare(node);
        match (Self::is_bare(node), id) {
            (false, None) => self.html("<p>"),
            (true, None) => {}
            (bare, Some(id)) => {
                let id = format!("^{id}");
                self.ids.insert(id.clone());
                self.html(if bare { "<span" } else { "<p" });
                self.id(&id);
                self.html(">");
                self.html(if bare { "</span>" } else { "" });
            }
        }
    }

    fn leave_paragraph(&mut self, node: Node<'_>) {
        let bare = Self::is_bare(node);
        self.in_paragraph = false;
        self.html(if bare { "" } else { "</p>\n" });
        let (piece, span) = self.started.pop().unwrap_or_default();
        if let Some(id) = self.block_id.take() {
            let end = self.cut();
            self.body.blocks.push((format!("^{id}").into(), piece, end));
        }
        let is_text = node.parent().is_some_and(|up| matches!(up.data().value, NodeValue::Document));
        let spans = &self.body.text[span.min(self.body.text.len())..];
        if is_text && self.body.lead.is_empty() && !link::is_blank(spans) {
            self.body.lead = spans.to_vec();
        }
        self.span("\n");
    }

    fn leave_heading(&mut self, node: Node<'_>, level: u8) {
        self.lines -= 1;
        // The tag of a heading holds its id, which is known only now. The pieces of its content are moved behind the
        // tag.
        self.cut();
        let (start, span) = self.started.pop().unwrap_or_default();
        let text: Vec<Span> = self.body.text[span.min(self.body.text.len())..].to_vec();
        let inner: Vec<BodyPiece> = self.body.pieces.drain(start..).collect();
        let mut own = String::new();
        let mut all = String::new();
        for span in &text {
            match span {
                Span::Text(text) => {
                    own.push_str(text);
                    all.push_str(text);
                }
                Span::Link(link) => all.push_str(&self.body.display_text(*link)),
            }
        }
        let id = self.unique(slug(&own));
        self.html(&format!("<h{level}"));
        self.id(&id);
        self.html(">");
        self.cut();
        self.body.pieces.extend(inner);
        self.html(" <a class=\"anchor\"");
        self.reference(&id);
        self.html(&format!(" aria-hidden=\"true\" tabindex=\"-1\">#</a></h{level}>\n"));
        let is_top = node.parent().is_some_and(|up| matches!(up.data().value, NodeValue::Document));
        let section = is_top.then_some((start, start));
        self.body.headings.push(Heading { level, id, key: slug(&all), text, section });
        self.span("\n");
    }

    fn unique(&mut self, slug: String) -> String {
        let base = if slug.is_empty() { "section".to_owned() } else { slug };
        let mut id = base.clone();
        if self.ids.insert(id.clone()) {
            return id;
        }
        let count = self.next_ids.entry(base.clone()).or_default();
        while !self.ids.insert(id.clone()) {
            *count += 1;
            id = format!("{base}-{count}");
        }
        id
    }

    fn enter_callout(&mut self, node: Node<'_>, callout: &comrak::nodes::NodeCallout) {
        let class = callout_class(&callout.callout_type);
        let (open, title) = match callout.fold {
            CalloutFold::None => (format!("<div class=\"callout {class}\">"), "<p class=\"callout-title\">"),
            CalloutFold::Expanded => {
                (format!("<details class=\"callout {class}\" open>"), "<summary class=\"callout-title\">")
            }
            CalloutFold::Collapsed => {
                (format!("<details class=\"callout {class}\">"), "<summary class=\"callout-title\">")
            }
        };
        self.html(&open);
        self.html(title);
        let first = node.first_child();
        if !first.is_some_and(|first| matches!(first.data().value, NodeValue::CalloutTitle)) {
            self.write_quoted(&callout.default_title());
            self.span("\n");
            self.html(if callout.fold == CalloutFold::None { "</p>\n" } else { "</summary>\n" });
        }
    }
}

/// Maps Obsidian's kinds of callouts to five classes. No text of the author becomes part of the class.
fn callout_class(kind: &str) -> &'static str {
    match kind {
        "tip" | "hint" | "important" | "success" | "check" | "done" => "tip",
        "question" | "help" | "faq" | "warning" | "caution" | "attention" => "warning",
        "failure" | "fail" | "missing" | "danger" | "error" | "bug" => "danger",
        "quote" | "cite" | "abstract" | "summary" | "tldr" | "example" => "quote",
        _ => "note",
    }
}
