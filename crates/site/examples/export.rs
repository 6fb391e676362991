//! Exports a folder of notes as a site of files: `export VAULT TO [PATTERN…]`. The patterns name notes that are
//! published in addition to those whose front matter says so. Prints the time that it took.

use std::path::Path;
use std::time::Instant;

use polynya_site::{Change, File, Options, Vault, is_file, is_note};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let (Some(from), Some(to)) = (args.next(), args.next()) else {
        return Err("usage: export VAULT TO [PATTERN…]".into());
    };
    let options = Options {
        publish: args.collect(),
        base_url: Some("https://example.org".to_owned()),
        search: Some("/search".to_owned()),
        ..Options::default()
    };
    let mut changes = Vec::new();
    read(Path::new(&from), "", &mut changes)?;
    let begin = Instant::now();
    let vault = Vault::new(options)?.apply(changes.clone());
    let built = begin.elapsed();
    for warning in vault.warnings() {
        eprintln!("{}: {}", warning.path, warning.message);
    }
    let (mut plain, mut gzip) = (0, 0);
    for url in vault.addresses() {
        let Some(page) = vault.page(url) else { continue };
        plain += page.plain.bytes.len();
        gzip += page.gzip.as_ref().unwrap_or(&page.plain).bytes.len();
        let name = url.trim_start_matches('/');
        let is_html = page.content_type.starts_with("text/html");
        let file = match is_html {
            true if name.is_empty() || name.ends_with('/') => format!("{name}index.html"),
            true => format!("{name}.html"),
            false => name.to_owned(),
        };
        let file = Path::new(&to).join(file);
        if let Some(parent) = file.parent() {
            std::fs::create_dir_all(parent)?;
        }
        std::fs::write(file, &page.plain.bytes)?;
    }
    // The time to apply a change of one note is the time for which an author waits.
    let last = changes.iter().rev().find_map(|change| match change {
        Change::Put(file) if file.path.ends_with(".md") => Some(file.clone()),
        _ => None,
    });
    let begin = Instant::now();
    if let Some(mut file) = last {
        file.bytes = [&file.bytes[..], b"\n\nOne more line.\n"].concat().into();
        drop(vault.apply([Change::Put(file)]));
    }
    let one = begin.elapsed();
    println!(
        "{} files, {} pages, {plain} bytes, {gzip} compressed; build {built:?}; one change {one:?}",
        changes.len(),
        vault.addresses().len(),
    );
    Ok(())
}

/// Reads the files of a folder and its subfolders. Skips hidden files and symbolic links.
fn read(folder: &Path, within: &str, changes: &mut Vec<Change>) -> std::io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = if within.is_empty() { name.clone() } else { format!("{within}/{name}") };
        match entry.file_type()? {
            _ if name.starts_with('.') => {}
            kind if kind.is_dir() => read(&entry.path(), &path, changes)?,
            kind if kind.is_file() && (is_note(&path) || is_file(&path)) => {
                let modified = entry.metadata()?.modified()?.duration_since(std::time::UNIX_EPOCH);
                let modified = modified.ok().map(|since| since.as_secs() as i64);
                let bytes = std::fs::read(entry.path())?.into();
                changes.push(Change::Put(File { path, bytes, modified }));
            }
            _ => {}
        }
    }
    Ok(())
}
