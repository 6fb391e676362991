//! "Did you mean": finds names that are close to one that was not found.

/// Returns up to three of `names` that differ from `wanted` by at most a third of its length, nearest first.
pub fn similar_names<'a>(wanted: &str, names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
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
pub fn did_you_mean(similar: &[impl AsRef<str>]) -> String {
    let names: Vec<String> =
        similar.iter().map(|n| format!("`{}`", types::name::printable(n.as_ref()))).collect();
    format!("did you mean {}?", names.join(" or "))
}

/// Formats names as "`a`, `b` or `c`", for a message that lists the allowed values.
pub fn one_of(names: &[impl AsRef<str>]) -> String {
    let quoted: Vec<String> = names.iter().map(|name| format!("`{}`", name.as_ref())).collect();
    match quoted.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, rest)) => format!("{} or {last}", rest.join(", ")),
        None => String::new(),
    }
}

/// Returns the distance of the lower-cased texts: the number of characters to insert, remove or replace, or to swap with
/// their neighbours (optimal string alignment).
fn distance(a: &str, b: &str) -> usize {
    let lower = |text: &str| text.chars().flat_map(char::to_lowercase).collect::<Vec<char>>();
    let (a, b) = (lower(a), lower(b));
    let mut before = Vec::new();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for i in 0..a.len() {
        let mut next = vec![i + 1];
        for j in 0..b.len() {
            let replaced = row[j] + usize::from(a[i] != b[j]);
            let mut least = replaced.min(row[j + 1] + 1).min(next[j] + 1);
            if i > 0 && j > 0 && a[i] == b[j - 1] && a[i - 1] == b[j] {
                least = least.min(before[j - 1] + 1);
            }
            next.push(least);
        }
        before = std::mem::replace(&mut row, next);
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_typo_finds_its_name_and_a_stranger_finds_none() {
        let names = ["main.events", "main.event_types", "main.users"];
        assert_eq!(similar_names("main.evnets", names.into_iter()), ["main.events"]);
        assert_eq!(similar_names("MAIN.USER", names.into_iter()), ["main.users"]);
        // Two letters that changed places are one slip.
        assert_eq!(similar_names("dosc", ["docs", "dusk"].into_iter()), ["docs"]);
        assert!(similar_names("main.zebra", names.into_iter()).is_empty());
    }

    #[test]
    fn names_are_listed_as_people_list_them() {
        assert_eq!(one_of(&["a"]), "`a`");
        assert_eq!(one_of(&["a", "b", "c"]), "`a`, `b` or `c`");
    }
}
