//! From the path of a request to a page.

use std::sync::Arc;

use super::Vault;
use crate::page::Page;
use crate::path::{self, PATH_BYTES_MAX};
use crate::text::decode;

/// What is at an address.
#[derive(Clone, Debug)]
pub enum Found<'a> {
    Page(&'a Arc<Page>),
    /// The same page has this address, percent-encoded: answer 301 or 308.
    Moved(&'a Arc<str>),
    /// The page that says so, with status 404.
    Missing(&'a Arc<Page>),
}

impl Vault {
    /// What is at the path of a request, as it was sent: percent-encoded, without query. One hash lookup for a page at
    /// its own address; nothing is allocated for it.
    pub fn find(&self, path: &str) -> Found<'_> {
        match self.state.pages.get(path) {
            Some(page) => Found::Page(page),
            None => self.find_moved(path).map_or(Found::Missing(&self.state.not_found), Found::Moved),
        }
    }

    fn find_moved(&self, path: &str) -> Option<&Arc<str>> {
        // Three bytes for each that is encoded.
        if path.len() > 3 * PATH_BYTES_MAX {
            return None;
        }
        let decoded = decode(path.strip_prefix('/')?)?;
        let is_plain = decoded.trim_matches('/').split('/').all(|part| part != ".." && part != ".");
        if !is_plain || decoded.contains(['\0', '\\']) {
            return None;
        }
        // Among addresses that differ in case only, the one that differs least.
        let candidates = self.state.folded.get(path::folded_url(&decoded).as_str())?;
        let exact = candidates
            .iter()
            .find(|url| decode(url).is_some_and(|url| url.trim_matches('/') == decoded.trim_matches('/')));
        exact.or_else(|| candidates.get_min())
    }

    /// Every address that has a page, sorted: for a copy of the site in files, and for tests.
    pub fn addresses(&self) -> Vec<&str> {
        let mut all: Vec<&str> = self.state.pages.keys().map(|url| &**url).collect();
        all.sort_unstable();
        all
    }

    pub fn page_count(&self) -> usize {
        self.state.pages.len()
    }

    /// The page at exactly this address.
    pub fn page(&self, url: &str) -> Option<&Arc<Page>> {
        self.state.pages.get(url)
    }
}
