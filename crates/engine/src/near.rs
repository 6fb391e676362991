//! "Did you mean": names that are close to one that was not found.

/// Up to three of `names` that differ from `wanted` by at most a third of its length, nearest first.
pub fn near<'a>(wanted: &str, names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let limit = (wanted.chars().count() / 3).max(1);
    let mut close: Vec<(usize, &str)> = names
        .filter(|name| name.len().abs_diff(wanted.len()) <= limit * 4)
        .map(|name| (distance(wanted, name), name))
        .filter(|(distance, _)| *distance <= limit)
        .take(1_000)
        .collect();
    close.sort();
    close.into_iter().take(3).map(|(_, name)| name).collect()
}

/// The hint of an error: "did you mean `a` or `b`?".
pub fn did_you_mean(near: &[impl AsRef<str>]) -> String {
    let names: Vec<String> =
        near.iter().map(|n| format!("`{}`", types::name::printable(n.as_ref()))).collect();
    format!("did you mean {}?", names.join(" or "))
}

/// Levenshtein distance of the lower-cased texts, in characters.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().flat_map(char::to_lowercase).collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().flat_map(char::to_lowercase).enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let substitute = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = substitute.min(row[j] + 1).min(row[j + 1] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_typo_finds_its_name_and_a_stranger_finds_none() {
        let names = ["main.events", "main.event_types", "main.users"];
        assert_eq!(near("main.evnets", names.into_iter()), ["main.events"]);
        assert_eq!(near("MAIN.USER", names.into_iter()), ["main.users"]);
        assert!(near("main.zebra", names.into_iter()).is_empty());
    }
}
