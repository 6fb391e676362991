//! The HTML shell of every page, prepared once for the options (O1).

use crate::options::Options;
use crate::page::{FOREVER, Page};
use crate::text::{escape, escape_into};

const SHELL: &str = include_str!("../theme/shell.html");
const STYLE: &str = include_str!("../theme/style.css");

/// The start of the search box in the shell. No title and no text of a note can contain it, since they are escaped.
const SEARCH_BOX: &str = "<input type=\"search\" name=\"q\"";

/// The parts of a page that go into the shell. All are HTML except the title and the search words.
#[derive(Default)]
pub(crate) struct PageParts {
    pub(crate) title: String,
    pub(crate) head: String,
    /// Breadcrumbs and table of contents.
    pub(crate) before: String,
    pub(crate) main: String,
    pub(crate) after: String,
    pub(crate) has_contents: bool,
    /// The words in the search box.
    pub(crate) sought: String,
}

pub(crate) struct Theme {
    /// The shell, split at its holes.
    pieces: Vec<ShellPiece>,
    pub(crate) style_url: String,
}

enum ShellPiece {
    Html(String),
    Title,
    Head,
    Before,
    Main,
    After,
}

impl Theme {
    pub(crate) fn new(options: &Options) -> Theme {
        let hash = blake3::hash(STYLE.as_bytes()).to_hex();
        let style_url = format!("/style.{}.css", &hash[..16]);
        let mut theme = Theme { pieces: Vec::new(), style_url };
        let mut html = String::new();
        let mut rest = SHELL;
        while let Some((before, after)) = rest.split_once('{') {
            let (name, after) = after.split_once('}').unwrap_or((after, ""));
            html.push_str(before);
            rest = after;
            let hole = match name {
                "title" => ShellPiece::Title,
                "head" => ShellPiece::Head,
                "before" => ShellPiece::Before,
                "main" => ShellPiece::Main,
                "after" => ShellPiece::After,
                name => {
                    html.push_str(&theme.word(options, name));
                    continue;
                }
            };
            theme.pieces.push(ShellPiece::Html(std::mem::take(&mut html)));
            theme.pieces.push(hole);
        }
        html.push_str(rest);
        theme.pieces.push(ShellPiece::Html(html));
        theme
    }

    fn word(&self, options: &Options, name: &str) -> String {
        let words = &options.words;
        match name {
            "language" => escape(&options.language),
            "style" => self.style_url.clone(),
            "skip" => escape(&words.skip),
            "site" => escape(&options.title),
            "all_notes" => escape(&words.all_notes),
            "tags" => escape(&words.tags),
            "feed" => escape(&words.feed),
            "search" => options.search.as_ref().map_or(String::new(), |action| {
                format!(
                    "<form role=\"search\" action=\"{}\">{SEARCH_BOX} aria-label=\"{word}\" placeholder=\"{word}\" required></form>\n",
                    escape(action),
                    word = escape(&words.search),
                )
            }),
            _ => String::new(),
        }
    }

    pub(crate) fn style(&self) -> Page {
        let mut page = Page::text("text/css; charset=utf-8", STYLE.to_owned(), None);
        page.cache_control = FOREVER;
        page
    }

    /// Returns a whole page.
    pub(crate) fn fill(&self, options: &Options, parts: &PageParts) -> String {
        let size = SHELL.len() + parts.head.len() + parts.before.len() + parts.main.len() + parts.after.len();
        let mut html = String::with_capacity(size + 1024);
        for piece in &self.pieces {
            match piece {
                ShellPiece::Html(text) => html.push_str(text),
                ShellPiece::Title => {
                    escape_into(&mut html, &parts.title);
                    if parts.title != options.title {
                        html.push_str(" · ");
                        escape_into(&mut html, &options.title);
                    }
                }
                ShellPiece::Head => html.push_str(&parts.head),
                ShellPiece::Before => html.push_str(&parts.before),
                ShellPiece::Main => html.push_str(&parts.main),
                ShellPiece::After => html.push_str(&parts.after),
            }
        }
        if parts.has_contents {
            html = html.replacen("<div class=\"page\">", "<div class=\"page with-contents\">", 1);
        }
        if !parts.sought.is_empty() {
            let with_words = format!("{SEARCH_BOX} value=\"{}\"", escape(&parts.sought));
            html = html.replacen(SEARCH_BOX, &with_words, 1);
        }
        html
    }

    /// Returns a page with only a title and text.
    pub(crate) fn simple(&self, options: &Options, title: &str, html: &str) -> Page {
        self.simple_sought(options, title, html, "")
    }

    /// Returns a page with only a title and text, and with words in the search box.
    pub(crate) fn simple_sought(&self, options: &Options, title: &str, html: &str, sought: &str) -> Page {
        let sought = sought.to_owned();
        let head = "<meta name=\"robots\" content=\"noindex\">\n".to_owned();
        let main = format!("<h1>{}</h1>\n{html}\n", escape(title));
        Page::html(
            self.fill(
                options,
                &PageParts { title: title.to_owned(), head, main, sought, ..PageParts::default() },
            ),
            None,
        )
    }

    pub(crate) fn not_found(&self, options: &Options) -> Page {
        let words = &options.words;
        let html = format!(
            "<p>{}</p>\n<p><a href=\"/all-notes\">{}</a></p>",
            escape(&words.not_found_text),
            escape(&words.all_notes)
        );
        Page { status: 404, ..self.simple(options, &words.not_found, &html) }
    }
}
