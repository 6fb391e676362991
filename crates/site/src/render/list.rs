//! Pages and files that list notes: folders, tags, all notes, feed, sitemap.

use std::fmt::Write;
use std::sync::Arc;

use super::breadcrumbs;
use crate::linked::Card;
use crate::note::date;
use crate::options::Options;
use crate::page::Page;
use crate::path;
use crate::text::{escape, escape_xml, fold};
use crate::theme::PageParts;
use crate::vault::{Hit, State, day_of};

/// The limit of the sitemap protocol on the addresses in one file.
const SITEMAP_URLS_MAX: usize = 50_000;

/// The number of digits to which numbers in titles are padded for sorting.
const NUMBER_DIGITS_MAX: usize = 20;

/// Returns the sort key of a title: without case, and with numbers in numeric order, so that 2 comes before 10.
fn sort_key(title: &str) -> String {
    let title = fold(title);
    let mut key = String::with_capacity(title.len() + NUMBER_DIGITS_MAX);
    let mut rest = title.as_str();
    while let Some(at) = rest.find(|c: char| c.is_ascii_digit()) {
        key.push_str(&rest[..at]);
        rest = &rest[at..];
        let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let number = rest[..digits].trim_start_matches('0');
        key.extend(std::iter::repeat_n('0', NUMBER_DIGITS_MAX.saturating_sub(number.len())));
        key.push_str(number);
        rest = &rest[digits..];
    }
    key + rest
}

/// Sorts cards by title in the order in which a person looks for them, and by path among equal titles.
pub(super) fn sorted<'a>(cards: impl Iterator<Item = &'a Card>) -> Vec<&'a Card> {
    let mut cards: Vec<(String, &Card)> = cards.map(|card| (sort_key(&card.title), card)).collect();
    cards.sort_unstable_by(|(a, x), (b, y)| a.cmp(b).then_with(|| x.path.cmp(&y.path)));
    cards.into_iter().map(|(_, card)| card).collect()
}

/// Renders the pages that depend only on the options.
pub(crate) fn fixed(state: &State) -> Vec<(String, Page)> {
    let sitemap = match &state.site.options.base_url {
        Some(base) => format!("Sitemap: {base}/sitemap.xml\n"),
        None => String::new(),
    };
    let robots = format!("User-agent: *\nAllow: /\n{sitemap}");
    vec![
        (state.theme.style_url.clone(), state.theme.style()),
        ("/robots.txt".to_owned(), Page::text("text/plain; charset=utf-8", robots, None)),
    ]
}

/// Renders the pages that depend on all cards.
pub(crate) fn lists(state: &State) -> Vec<(String, Page)> {
    let mut lists = vec![
        ("/all-notes".to_owned(), all_notes(state)),
        ("/tags/".to_owned(), all_tags(state)),
        ("/feed.xml".to_owned(), feed(state)),
    ];
    lists.extend(sitemaps(state));
    lists
}

pub(super) fn feed_link(head: &mut String, options: &Options) {
    let title = escape(&options.title);
    let _ = writeln!(
        head,
        "<link rel=\"alternate\" type=\"application/atom+xml\" title=\"{title}\" href=\"/feed.xml\">"
    );
}

fn page(state: &State, title: &str, before: String, main: String) -> Page {
    let options = &state.site.options;
    let mut head = String::new();
    feed_link(&mut head, options);
    let parts = PageParts { title: title.to_owned(), head, before, main, ..PageParts::default() };
    Page::html(state.theme.fill(options, &parts), None)
}

fn entries<'a>(out: &mut String, cards: impl Iterator<Item = &'a Card>) {
    out.push_str("<ul class=\"list\">\n");
    for card in cards {
        let _ = write!(out, "<li><a href=\"{}\">{}</a>", escape(&card.url), escape(&card.title));
        if let Some(day) = day_of(card) {
            let _ = write!(out, " <time datetime=\"{day}\">{day}</time>");
        }
        if !card.description.is_empty() {
            let _ = write!(out, "<p>{}</p>", escape(&crate::text::shorten(&card.description, 160)));
        }
        out.push_str("</li>\n");
    }
    out.push_str("</ul>\n");
}

/// Renders the list of a folder without an index note. The list of the top folder is the first page of the site.
pub(crate) fn folder(state: &State, folder: &Arc<str>) -> Page {
    let options = &state.site.options;
    let words = &options.words;
    let title = if folder.is_empty() { options.title.as_str() } else { path::split(folder).1 };
    let mut main = format!("<h1>{}</h1>\n", escape(title));
    if folder.is_empty() && !options.description.is_empty() {
        let _ = writeln!(main, "<p>{}</p>", escape(&options.description));
    }
    let content = state.folders.get(folder);
    let folders: Vec<(&str, String)> = content
        .into_iter()
        .flat_map(|content| content.folders.iter())
        .filter_map(|inner| Some((path::split(inner).1, state.folder_page(inner)?)))
        .collect();
    let paths = content.into_iter().flat_map(|content| content.notes.iter());
    let cards = sorted(paths.filter_map(|path| state.linked.get(path)).map(|linked| &linked.card));
    if folders.is_empty() && cards.is_empty() {
        let _ = writeln!(main, "<p>{}</p>", escape(&words.empty));
    }
    if !folders.is_empty() {
        let _ = write!(main, "<h2>{}</h2>\n<ul class=\"list short\">\n", escape(&words.folders));
        for (name, url) in folders {
            let _ = writeln!(main, "<li><a href=\"{}\">{}/</a></li>", escape(&url), escape(name));
        }
        main.push_str("</ul>\n");
        if !cards.is_empty() {
            let _ = writeln!(main, "<h2>{}</h2>", escape(&words.notes));
        }
    }
    if !cards.is_empty() {
        entries(&mut main, cards.into_iter());
    }
    let mut before = String::new();
    let itself = Card {
        path: folder.clone(),
        url: path::folder_url(folder).into(),
        title: String::new(),
        description: String::new(),
        tags: Vec::new(),
        updated: None,
        created: None,
    };
    breadcrumbs(&mut before, state, folder, &itself);
    page(state, title, before, main)
}

/// Renders the list of published notes with a tag.
pub(crate) fn tag(state: &State, tag: &Arc<str>) -> Page {
    let words = &state.site.options.words;
    let cards = state.tags.get(tag).filter_map(|path| state.linked.get(path)).map(|linked| &linked.card);
    let mut main = format!("<h1>#{}</h1>\n", escape(tag));
    entries(&mut main, sorted(cards).into_iter());
    let before = format!(
        "<nav class=\"breadcrumbs\" aria-label=\"{}\">\n<ol>\n<li><a href=\"/\">{}</a></li>\n<li><a href=\"/tags/\">{}</a></li>\n</ol>\n</nav>\n",
        escape(&words.breadcrumbs),
        escape(&words.home),
        escape(&words.tags)
    );
    page(state, &format!("{} #{tag}", words.tagged), before, main)
}

/// Renders the results of a search. The `snippet` of a hit is HTML already.
pub(crate) fn search_results(state: &State, sought: &str, total: u64, hits: &[Hit]) -> Page {
    let words = &state.site.options.words;
    let mut html = String::new();
    let known = hits.iter().filter_map(|hit| Some((&state.linked.get(hit.path.as_str())?.card, hit)));
    let known: Vec<(&Card, &Hit)> = known.collect();
    if known.is_empty() {
        let _ = writeln!(html, "<p>{}</p>", escape(&words.nothing_found));
    } else {
        let shown = known.len() as u64;
        let noun = escape(if total.max(shown) == 1 { &words.found_one } else { &words.found });
        let _ = if shown < total {
            writeln!(html, "<p>{shown} / {total} {noun}</p>")
        } else {
            writeln!(html, "<p>{shown} {noun}</p>")
        };
        html.push_str("<ul class=\"list\">\n");
        for (card, hit) in known {
            let _ = writeln!(
                html,
                "<li><a href=\"{}\">{}</a><p>{}</p></li>",
                escape(&card.url),
                escape(&card.title),
                hit.snippet
            );
        }
        html.push_str("</ul>\n");
    }
    let title = format!("{}: {sought}", words.search);
    state.theme.simple_sought(&state.site.options, &title, &html, sought)
}

fn all_tags(state: &State) -> Page {
    let words = &state.site.options.words;
    let mut main = format!("<h1>{}</h1>\n<ul class=\"list short\">\n", escape(&words.tags));
    let mut count = 0;
    for (tag, notes) in state.tags.iter() {
        let _ = writeln!(
            main,
            "<li><a class=\"tag\" href=\"{}\">#{}</a> <span class=\"count\">{}</span></li>",
            path::tag_url(tag),
            escape(tag),
            notes.len()
        );
        count += 1;
    }
    main.push_str("</ul>\n");
    if count == 0 {
        let why = if state.linked.is_empty() { &words.empty } else { &words.no_tags };
        let _ = writeln!(main, "<p>{}</p>", escape(why));
    }
    page(state, &words.tags, String::new(), main)
}

fn all_notes(state: &State) -> Page {
    let words = &state.site.options.words;
    let mut main = format!("<h1>{}</h1>\n", escape(&words.all_notes));
    let cards: Vec<&Card> = state.linked.values().map(|linked| &linked.card).collect();
    if cards.is_empty() {
        let _ = writeln!(main, "<p>{}</p>", escape(&words.empty));
    }
    let mut by_folder = std::collections::BTreeMap::<&str, Vec<&Card>>::new();
    for card in cards {
        by_folder.entry(path::split(&card.path).0).or_default().push(card);
    }
    for (folder, cards) in by_folder {
        if !folder.is_empty() {
            let _ = writeln!(main, "<h2>{}</h2>", escape(folder));
        }
        main.push_str("<ul class=\"list short\">\n");
        for card in sorted(cards.into_iter()) {
            let _ = writeln!(main, "<li><a href=\"{}\">{}</a></li>", escape(&card.url), escape(&card.title));
        }
        main.push_str("</ul>\n");
    }
    page(state, &words.all_notes, String::new(), main)
}

/// Renders the Atom feed, newest notes first. Without a base address its links are relative; feed readers resolve them.
fn feed(state: &State) -> Page {
    let options = &state.site.options;
    let mut cards: Vec<&Card> = state.linked.values().map(|linked| &linked.card).collect();
    let newest = |card: &Card| std::cmp::Reverse(card.created.or(card.updated).unwrap_or(0));
    cards.sort_by(|a, b| newest(a).cmp(&newest(b)).then_with(|| a.path.cmp(&b.path)));
    cards.truncate(options.feed_entries_max);
    let id = |url: &str| match &options.base_url {
        Some(base) => format!("{base}{url}"),
        None => format!(
            "urn:polynya:{}",
            &blake3::hash(format!("{}\0{url}", options.title).as_bytes()).to_hex()[..32]
        ),
    };
    let updated = cards.iter().filter_map(|card| card.updated).max().unwrap_or(0);
    let mut xml = format!(
        "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n<feed xmlns=\"http://www.w3.org/2005/Atom\" xml:lang=\"{}\">\n<title>{}</title>\n",
        escape_xml(&options.language),
        escape_xml(&options.title)
    );
    if !options.description.is_empty() {
        let _ = writeln!(xml, "<subtitle>{}</subtitle>", escape_xml(&options.description));
    }
    let _ = write!(
        xml,
        "<id>{}</id>\n<link rel=\"self\" type=\"application/atom+xml\" href=\"{}\"/>\n<link href=\"{}\"/>\n<updated>{}</updated>\n<author><name>{}</name></author>\n",
        escape_xml(&id("/")),
        escape_xml(&state.site.absolute("/feed.xml")),
        escape_xml(&state.site.absolute("/")),
        date::rfc3339(updated),
        escape_xml(&options.title)
    );
    for card in cards {
        let url = escape_xml(&state.site.absolute(&card.url));
        let _ = write!(
            xml,
            "<entry>\n<title>{}</title>\n<id>{}</id>\n<link href=\"{url}\"/>\n<updated>{}</updated>\n",
            escape_xml(&card.title),
            escape_xml(&id(&card.url)),
            date::rfc3339(card.updated.unwrap_or(0))
        );
        if let Some(created) = card.created {
            let _ = writeln!(xml, "<published>{}</published>", date::rfc3339(created));
        }
        if !card.description.is_empty() {
            let _ = writeln!(xml, "<summary>{}</summary>", escape_xml(&card.description));
        }
        for tag in &card.tags {
            let _ = writeln!(xml, "<category term=\"{}\"/>", escape_xml(tag));
        }
        xml.push_str("</entry>\n");
    }
    xml.push_str("</feed>\n");
    Page::text("application/atom+xml; charset=utf-8", xml, None)
}

/// Renders one sitemap, or an index of several. There is none without a base address, since its addresses must be
/// absolute.
fn sitemaps(state: &State) -> Vec<(String, Page)> {
    const HEAD: &str = "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n";
    const SPACE: &str = "xmlns=\"http://www.sitemaps.org/schemas/sitemap/0.9\"";
    const TYPE: &str = "application/xml; charset=utf-8";
    if state.site.options.base_url.is_none() {
        return Vec::new();
    }
    let cards: Vec<&Card> = state.linked.values().map(|linked| &linked.card).collect();
    let one = |cards: &[&Card]| {
        let mut xml = format!("{HEAD}<urlset {SPACE}>\n");
        for card in cards {
            let _ = write!(xml, "<url><loc>{}</loc>", escape_xml(&state.site.absolute(&card.url)));
            if let Some(updated) = card.updated {
                let _ = write!(xml, "<lastmod>{}</lastmod>", date::rfc3339(updated));
            }
            xml.push_str("</url>\n");
        }
        xml.push_str("</urlset>\n");
        Page::text(TYPE, xml, None)
    };
    if cards.len() <= SITEMAP_URLS_MAX {
        return vec![("/sitemap.xml".to_owned(), one(&cards))];
    }
    let mut all = Vec::new();
    let mut index = format!("{HEAD}<sitemapindex {SPACE}>\n");
    for (at, cards) in cards.chunks(SITEMAP_URLS_MAX).enumerate() {
        let url = format!("/sitemap.xml/{}", at + 1);
        let _ = writeln!(index, "<sitemap><loc>{}</loc></sitemap>", escape_xml(&state.site.absolute(&url)));
        all.push((url, one(cards)));
    }
    index.push_str("</sitemapindex>\n");
    all.push(("/sitemap.xml".to_owned(), Page::text(TYPE, index, None)));
    all
}
