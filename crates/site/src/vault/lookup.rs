//! Finds the page for the path of a request.

use std::sync::Arc;

use super::Vault;
use crate::page::Page;
use crate::path::{self, PATH_BYTES_MAX};
use crate::text::decode;

/// The result of looking up an address.
#[derive(Clone, Debug)]
pub enum PageLookup<'a> {
    Page(&'a Arc<Page>),
    /// The page has this other address, percent-encoded. The server answers with 301 or 308.
    Moved(&'a Arc<str>),
    /// There is no such page. This page with status 404 says so.
    Missing(&'a Arc<Page>),
}

impl Vault {
    /// Looks up the path of a request as it was sent: percent-encoded, without the query. For a page at its own address
    /// this is one hash lookup and allocates nothing.
    pub fn find(&self, path: &str) -> PageLookup<'_> {
        match self.state.pages.get(path) {
            Some(page) => PageLookup::Page(page),
            None => {
                self.find_moved(path).map_or(PageLookup::Missing(&self.state.not_found), PageLookup::Moved)
            }
        }
    }

    fn find_moved(&self, path: &str) -> Option<&Arc<str>> {
        // A percent-encoded byte takes three bytes.
        if path.len() > 3 * PATH_BYTES_MAX {
            return None;
        }
        let decoded = decode(path.strip_prefix('/')?)?;
        let is_plain = decoded.trim_matches('/').split('/').all(|part| part != ".." && part != ".");
        if !is_plain || decoded.contains(['\0', '\\']) {
            return None;
        }
        // An address may differ from the request in case or in its ending. One with the same case is preferred.
        let candidates = self.state.folded.get(path::folded_url(&decoded).as_str())?;
        let exact = candidates
            .iter()
            .find(|url| decode(url).is_some_and(|url| url.trim_matches('/') == decoded.trim_matches('/')));
        exact.or_else(|| candidates.get_min())
    }

    /// Returns every address that has a page, sorted. For an export of the site to files, and for tests.
    pub fn addresses(&self) -> Vec<&str> {
        let mut all: Vec<&str> = self.state.pages.keys().map(|url| &**url).collect();
        all.sort_unstable();
        all
    }

    pub fn page_count(&self) -> usize {
        self.state.pages.len()
    }

    /// Returns the page at exactly this address.
    pub fn page(&self, url: &str) -> Option<&Arc<Page>> {
        self.state.pages.get(url)
    }
}
