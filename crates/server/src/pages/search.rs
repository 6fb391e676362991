//! `/?q=words`: a search of the site, answered with a page.
//!
//! It searches as a principal that may read the vault and is not an admin, so that only published rows are searched, counted and
//! compared (A1). The site leaves out hits that have no page.

use arrow::array::AsArray;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use query::search::{Request, SearchResult};
use site::{Hit, Site, Vault};
use types::{Kind, Principal, Scope, TableSet};

use super::{page_response, rendering_response};
use crate::app::App;
use crate::failure::Failure;

/// Maximum number of hits, all on one page. There is no second page, because more precise words help more.
const HITS_MAX: usize = 30;
const WORDS_CHARS_MAX: usize = 400;

/// Returns the words of a search. Returns `None` if the site has no search or the request is not one: a search is at the root,
/// with the parameter of the site's form.
pub fn words(app: &App, vault: &Vault, uri: &Uri) -> Option<String> {
    uri.query().filter(|_| uri.path() == "/")?;
    if vault.options().search.is_none() || app.options.search.is_none() {
        return None;
    }
    let pairs = axum::extract::Query::<Vec<(String, String)>>::try_from_uri(uri).ok()?.0;
    let words = pairs.into_iter().find_map(|(name, value)| (name == "q").then_some(value))?;
    let words: String = words.trim().chars().take(WORDS_CHARS_MAX).collect();
    (!words.is_empty()).then_some(words)
}

pub async fn answer(app: &App, words: String, headers: &HeaderMap) -> Response {
    let (Some(table), Some(search)) = (app.options.site.as_deref(), &app.options.search) else {
        return rendering_response();
    };
    let reader =
        Principal { name: "site".into(), scope: Scope::Read, tables: TableSet::Only(vec![table.to_owned()]) };
    let request = Request {
        tables: vec![table.to_owned()],
        fields: Some(vec!["path".into()]),
        limit: HITS_MAX,
        ..Request::new(words.clone())
    };
    let found = search.run(&reader, request).await;
    let root = app.engine.root();
    let site = root.table(table).and_then(|table| root.derived(site::NAME, table.def().id));
    let Some(site) = site.and_then(|position| position.published::<Site>()) else {
        return rendering_response();
    };
    let title = &site.vault.options().words.search;
    let (status, page) = match found {
        Ok(found) => (StatusCode::OK, site.vault.search_page(&words, found.total, &hits(&found))),
        // The query does not parse: its author gets the reason.
        Err(error) if error.kind() == Kind::Invalid => {
            (StatusCode::BAD_REQUEST, site.vault.notice_page(title, error.message()))
        }
        Err(error) if error.kind() == Kind::Busy => return Failure::from(error).into_response(),
        Err(error) => {
            let status = Failure::from(error).status();
            (status, site.vault.notice_page(title, "The search failed. Try again in a moment."))
        }
    };
    let mut response = page_response(&page, headers);
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if status != StatusCode::OK {
        *response.status_mut() = status;
    }
    response
}

/// Returns the paths of the hits with their snippets, best first.
fn hits(found: &SearchResult) -> Vec<Hit> {
    let path = |hit: &query::search::Hit| {
        let rows = &found.tables.get(hit.table)?.rows;
        let paths = rows.column_by_name("path")?.as_string_opt::<i32>()?;
        (hit.at < rows.num_rows()).then(|| paths.value(hit.at).to_owned())
    };
    let text = |hit: &query::search::Hit| {
        let of = |name: &str| hit.snippets.iter().find(|(column, _)| column == name).map(|(_, html)| html);
        of("text").cloned().unwrap_or_default()
    };
    found.hits.iter().filter_map(|hit| Some(Hit { path: path(hit)?, snippet: text(hit) })).collect()
}
