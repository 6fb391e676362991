//! Tests of the pages of a vault: the content that they must show, and the content that they must never show.

mod derived;
mod hostile;
mod links;
mod lists;
mod markdown;
mod names;
mod random;

use bytes::Bytes;

use crate::{Change, File, Options, PageLookup, Vault};

/// Returns the change that adds or replaces a note or file.
fn put(path: &str, text: impl AsRef<[u8]>) -> Change {
    let bytes = Bytes::copy_from_slice(text.as_ref());
    Change::Put(File { path: path.to_owned(), bytes, modified: Some(1_700_000_000) })
}

fn options() -> Options {
    Options {
        title: "Test".to_owned(),
        base_url: Some("https://example.org/".to_owned()),
        publish: vec!["**".to_owned()],
        ..Options::default()
    }
}

/// Builds a vault that publishes every note unless its front matter objects.
fn vault(files: &[(&str, &str)]) -> Vault {
    vault_with(options(), files)
}

fn vault_with(options: Options, files: &[(&str, &str)]) -> Vault {
    let empty = Vault::new(options).expect("options");
    empty.apply(files.iter().map(|(path, text)| put(path, text)))
}

/// Returns the page at an address as text.
fn page(vault: &Vault, url: &str) -> String {
    let page = vault.page(url).unwrap_or_else(|| panic!("no {url} in {:?}", vault.addresses()));
    String::from_utf8(page.plain.bytes.to_vec()).expect("UTF-8")
}

/// Returns the HTML of a note's page inside `<article>`.
fn article(vault: &Vault, url: &str) -> String {
    let page = page(vault, url);
    let (_, rest) = page.split_once("<article>\n").expect("an article");
    rest.split_once("</article>").expect("its end").0.to_owned()
}

/// Returns the article of a vault's only note.
fn rendered(text: &str) -> String {
    article(&vault(&[("note.md", text)]), "/note").replacen("<h1>note</h1>\n", "", 1)
}

fn moved(vault: &Vault, path: &str) -> Option<String> {
    match vault.find(path) {
        PageLookup::Moved(url) => Some(url.to_string()),
        _ => None,
    }
}

fn is_missing(vault: &Vault, path: &str) -> bool {
    matches!(vault.find(path), PageLookup::Missing(page) if page.status == 404)
}

/// Returns all that a reader can get: every address with its bytes.
fn everything(vault: &Vault) -> Vec<(String, Vec<u8>)> {
    let page = |url: &str| vault.page(url).map(|page| page.plain.bytes.to_vec()).unwrap_or_default();
    vault.addresses().into_iter().map(|url| (url.to_owned(), page(url))).collect()
}
