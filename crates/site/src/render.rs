//! Renders the pages of a vault. All are pure functions: no page depends on time or on the order of a hash map.

mod fill;
mod list;

use std::fmt::Write;
use std::sync::Arc;

use crate::body::{Heading, Span};
use crate::linked::{Card, LinkedNote};
use crate::note::{self, date};
use crate::options::Options;
use crate::page::Page;
use crate::path;
use crate::text::{encode_part, escape, escape_into};
use crate::theme::PageParts;
use crate::vault::State;

pub(crate) use list::{fixed, folder, lists, search_results, tag};

/// The number of headings from which a page has a table of contents.
const CONTENTS_HEADINGS_MIN: usize = 3;
/// The largest number of headings in a table of contents. More are of no use, and the table is on the page twice.
const CONTENTS_HEADINGS_MAX: usize = 500;

/// Renders the page of a published note.
pub(crate) fn note(state: &State, linked: &Arc<LinkedNote>) -> Page {
    let card = &linked.card;
    let Some(entry) = state.notes.get(&card.path) else { return Page::html(String::new(), None) };
    let note = &entry.note;
    let options = &state.site.options;
    let mut main = String::from("<article>\n");
    if !note.body.has_title {
        let _ = writeln!(main, "<h1>{}</h1>", escape(&card.title));
        meta(&mut main, card);
    }
    let filled = fill::body(state, linked, note);
    let list = contents(options, linked, note);
    match filled.html.split_once("</h1>\n") {
        // Date and tags stand below the title.
        Some((title, rest)) if note.body.has_title => {
            main.push_str(title);
            main.push_str("</h1>\n");
            meta(&mut main, card);
            folded_contents(&mut main, options, list.as_deref());
            main.push_str(rest);
        }
        _ => {
            folded_contents(&mut main, options, list.as_deref());
            main.push_str(&filled.html);
        }
    }
    main.push_str("</article>\n");
    let backlinks: Vec<Arc<str>> = state.backlinks.get(&card.path).cloned().collect();
    let cards = backlinks.iter().filter_map(|path| state.linked.get(path)).map(|linked| &linked.card);
    let cards: Vec<&Card> = list::sorted(cards);
    let mut after = String::new();
    if !cards.is_empty() {
        let title = escape(&options.words.backlinks);
        let _ = write!(
            after,
            "<aside class=\"backlinks\" aria-labelledby=\"page:backlinks\">\n<h2 id=\"page:backlinks\">{title}</h2>\n<ul>\n"
        );
        for card in &cards {
            let _ = writeln!(after, "<li><a href=\"{}\">{}</a></li>", escape(&card.url), escape(&card.title));
        }
        after.push_str("</ul>\n</aside>\n");
    }
    let mut before = String::new();
    breadcrumbs(&mut before, state, path::split(&card.path).0, card);
    // This table stands beside the text where there is room for it. The style sheet shows one of the two.
    if let Some(list) = &list {
        let _ = write!(
            before,
            "<nav class=\"contents\" aria-labelledby=\"page:contents\">\n<h2 id=\"page:contents\">{}</h2>\n{list}</nav>\n",
            escape(&options.words.contents)
        );
    }
    let mut sources = vec![entry.modified];
    sources.extend(backlinks.iter().chain(&filled.shown).map(|path| state.modified_of(path)));
    let parts = PageParts {
        title: card.title.clone(),
        head: head(state, card),
        before,
        main,
        after,
        has_contents: list.is_some(),
        ..PageParts::default()
    };
    Page::html(state.theme.fill(options, &parts), sources.into_iter().flatten().max())
}

fn head(state: &State, card: &Card) -> String {
    let options = &state.site.options;
    let mut head = String::new();
    if !card.description.is_empty() {
        let description = escape(&card.description);
        let _ = writeln!(head, "<meta name=\"description\" content=\"{description}\">");
        let _ = writeln!(head, "<meta property=\"og:description\" content=\"{description}\">");
    }
    let _ = writeln!(head, "<meta property=\"og:type\" content=\"article\">");
    let _ = writeln!(head, "<meta property=\"og:title\" content=\"{}\">", escape(&card.title));
    let _ = writeln!(head, "<meta property=\"og:site_name\" content=\"{}\">", escape(&options.title));
    if options.base_url.is_some() {
        let url = escape(&state.site.absolute(&card.url));
        let _ = writeln!(
            head,
            "<meta property=\"og:url\" content=\"{url}\">\n<link rel=\"canonical\" href=\"{url}\">"
        );
    }
    list::feed_link(&mut head, options);
    head
}

/// Writes the date and tags of a note.
fn meta(out: &mut String, card: &Card) {
    if card.tags.is_empty() && card.created.is_none() {
        return;
    }
    out.push_str("<div class=\"meta\">");
    if let Some(created) = card.created {
        let day = date::day(created);
        let _ = write!(out, "<time datetime=\"{day}\">{day}</time>");
    }
    for tag in &card.tags {
        let _ = write!(out, "<a class=\"tag\" href=\"{}\">#{}</a>", path::tag_url(tag), escape(tag));
    }
    out.push_str("</div>\n");
}

/// Writes links to the folders above a page.
fn breadcrumbs(out: &mut String, state: &State, folder: &str, card: &Card) {
    let folders: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    if folders.is_empty() {
        return;
    }
    let words = &state.site.options.words;
    let _ = write!(out, "<nav class=\"breadcrumbs\" aria-label=\"{}\">\n<ol>\n", escape(&words.breadcrumbs));
    let _ = writeln!(out, "<li><a href=\"/\">{}</a></li>", escape(&words.home));
    for depth in 0..folders.len() {
        let above = folders[..=depth].join("/");
        let name = escape(folders[depth]);
        match state.folder_page(&above) {
            // This is the page itself.
            Some(url) if *url == *card.url => {
                let _ = writeln!(out, "<li aria-current=\"page\">{name}</li>");
            }
            Some(url) => {
                let _ = writeln!(out, "<li><a href=\"{}\">{name}</a></li>", escape(&url));
            }
            None => {
                let _ = writeln!(out, "<li>{name}</li>");
            }
        }
    }
    out.push_str("</ol>\n</nav>\n");
}

/// Writes the table of contents below the title, for screens without room beside the text.
fn folded_contents(out: &mut String, options: &Options, list: Option<&str>) {
    let Some(list) = list else { return };
    let title = escape(&options.words.contents);
    let _ = write!(
        out,
        "<details class=\"contents\"><summary>{title}</summary>\n<nav aria-label=\"{title}\">\n{list}</nav>\n</details>\n"
    );
}

/// Returns the table of contents, or `None` if there are too few headings.
fn contents(options: &Options, linked: &LinkedNote, note: &note::Note) -> Option<String> {
    let skipped = usize::from(note.body.has_title);
    let headings: Vec<&Heading> =
        note.body.headings.iter().skip(skipped).take(CONTENTS_HEADINGS_MAX).collect();
    if headings.len() < CONTENTS_HEADINGS_MIN {
        return None;
    }
    let withheld = &options.words.withheld;
    let text = |spans: &[Span]| note::one_line(spans, 200, |at| linked.display_text(note, at, withheld));
    let mut out = String::new();
    // The levels of the open lists. A heading may skip levels.
    let mut open: Vec<u8> = Vec::new();
    for heading in headings {
        while open.len() > 1 && open.last().is_some_and(|level| *level > heading.level) {
            open.pop();
            out.push_str("</li></ul>");
        }
        match open.last() {
            None => {
                out.push_str("<ul>\n<li>");
                open.push(heading.level);
            }
            Some(level) if *level < heading.level => {
                out.push_str("\n<ul><li>");
                open.push(heading.level);
            }
            Some(_) => out.push_str("</li>\n<li>"),
        }
        let _ = write!(out, "<a href=\"#{}\">", encode_part(&heading.id));
        escape_into(&mut out, &text(&heading.text));
        out.push_str("</a>");
    }
    for _ in open {
        out.push_str("</li></ul>");
    }
    out.push('\n');
    Some(out)
}
