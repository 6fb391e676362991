//! The words that have a meaning by themselves. `docs/ask.md` lists them for people.

/// Words that carry no meaning of their own in a question.
pub(crate) const FILLERS: &[&str] = &[
    "a",
    "an",
    "the",
    "is",
    "are",
    "was",
    "were",
    "be",
    "been",
    "being",
    "am",
    "do",
    "does",
    "did",
    "done",
    "have",
    "has",
    "had",
    "having",
    "i",
    "me",
    "my",
    "we",
    "us",
    "our",
    "you",
    "your",
    "it",
    "its",
    "they",
    "them",
    "their",
    "this",
    "that",
    "these",
    "those",
    "there",
    "here",
    "of",
    "in",
    "on",
    "at",
    "to",
    "for",
    "from",
    "with",
    "by",
    "as",
    "and",
    "or",
    "but",
    "any",
    "some",
    "all",
    "every",
    "each",
    "anything",
    "something",
    "everything",
    "show",
    "tell",
    "give",
    "list",
    "display",
    "print",
    "find",
    "get",
    "see",
    "look",
    "check",
    "report",
    "please",
    "can",
    "could",
    "would",
    "may",
    "might",
    "must",
    "what",
    "which",
    "when",
    "where",
    "how",
    "whether",
    "if",
    "then",
    "than",
    "so",
    "let",
    "know",
    "now",
    "right",
    "currently",
    "current",
    "presently",
    "moment",
    "just",
    "already",
    "yet",
    "still",
    "very",
    "really",
    "too",
    "also",
    "about",
    "per",
    "ever",
    "going",
    "happening",
    "value",
    "values",
    "number",
    "please",
    "thanks",
    "hi",
    "hello",
    "hey",
    "was",
    "got",
    "went",
    "go",
    "goes",
    "been",
    "into",
    "out",
    "up",
    "much",
    "many",
    "more",
    "most",
    "other",
    "same",
    "ones",
    "one",
    "thing",
    "things",
    "like",
    "where",
    "whose",
    "containing",
    "contain",
    "contains",
    "having",
    "than",
    "server",
    "machine",
    "computer",
    "host",
    "system",
    "box",
    "polynya",
    "status",
    "state",
    "level",
    "because",
    "during",
    "while",
    "time",
    "times",
    "today",
    "nearly",
    "almost",
];

/// Words that negate.
pub(crate) const NEGATIONS: &[&str] = &["no", "not", "never", "none", "without", "nothing", "neither"];
/// Negations that may stand before a value: `not DE`. The others say that there is nothing.
pub(crate) const NOT: &[&str] = &["not", "without"];

/// Question words that ask for more than an answer can give. Full-text searches ignore them.
pub(crate) const ASKING: &[&str] = &["why", "who", "whom", "will", "shall", "should"];

/// Words that no value begins with: `kind is the …`.
pub(crate) const NO_VALUES: &[&str] = &[
    "a", "an", "the", "any", "some", "all", "there", "here", "this", "that", "these", "those", "and", "or",
    "is", "are", "was", "were", "what", "which", "how", "than",
];
/// Words that are values only at the end of a phrase about a column: `country is at`.
pub(crate) const SMALL: &[&str] =
    &["it", "in", "on", "at", "of", "for", "to", "by", "from", "with", "too", "so", "most", "more", "no"];

/// Words about the future.
pub(crate) const FUTURE: &[&str] = &["will", "shall", "tomorrow"];
/// Verbs that order an action, at the beginning of a question.
pub(crate) const ORDERS: &[&str] = &[
    "delete", "drop", "remove", "insert", "update", "create", "truncate", "rename", "erase", "purge", "wipe",
    "alter", "destroy",
];
/// Words for the machine itself.
pub(crate) const MACHINE: &[&str] = &["machine", "server", "computer", "host", "system", "box"];

pub(crate) const CHANGED: &[&str] = &[
    "changed", "change", "changes", "new", "happened", "happen", "updated", "updates", "update", "modified",
    "added", "inserted", "deleted", "removed", "written", "edited", "created", "arrived", "came",
];

/// Nouns that occur only in questions about all changes.
pub(crate) const CHANGE_NOUNS: &[&str] = &["changes", "news", "activity"];

pub(crate) const REQUESTS: &[&str] = &[
    "request",
    "requests",
    "query",
    "queries",
    "call",
    "calls",
    "hits",
    "http",
    "latency",
    "latencies",
    "response",
    "responses",
];
pub(crate) const ERRORS: &[&str] =
    &["error", "errors", "failed", "failing", "failure", "failures", "fail", "fails"];
pub(crate) const SLOW: &[&str] = &["slow"];
pub(crate) const SLOWEST: &[&str] = &["slowest", "longest"];
pub(crate) const FASTEST: &[&str] = &["fastest", "quickest", "shortest"];

pub(crate) const NOTES: &[&str] = &[
    "note",
    "notes",
    "page",
    "pages",
    "document",
    "documents",
    "docs",
    "vault",
    "article",
    "articles",
    "wiki",
];

pub(crate) const DISK: &[&str] = &[
    "disk",
    "disks",
    "filesystem",
    "filesystems",
    "storage",
    "drive",
    "drives",
    "partition",
    "partitions",
    "volume",
    "volumes",
];
pub(crate) const SPACE: &[&str] = &["space", "room"];
pub(crate) const FULLNESS: &[&str] = &[
    "full",
    "fullest",
    "fuller",
    "free",
    "used",
    "left",
    "usage",
    "use",
    "remaining",
    "available",
    "empty",
    "capacity",
    "running",
    "runs",
    "run",
    "fill",
    "filling",
    "filled",
    "size",
];
pub(crate) const NEARLY: &[&str] =
    &["nearly", "almost", "close", "near", "getting", "soon", "running", "low", "short", "tight", "about"];
pub(crate) const ACTIVITY: &[&str] =
    &["busy", "io", "i/o", "reads", "writes", "reading", "writing", "throughput", "ios", "iops"];
pub(crate) const MEMORY: &[&str] = &["memory", "ram"];
pub(crate) const SWAP: &[&str] = &["swap", "swapping"];
pub(crate) const CPU: &[&str] = &["cpu", "cpus", "processor", "processors"];
pub(crate) const CORES: &[&str] = &["core", "cores"];
pub(crate) const LOAD: &[&str] = &["load"];
pub(crate) const NETWORK: &[&str] = &["network", "bandwidth", "net"];
pub(crate) const PRESSURE: &[&str] = &["pressure", "stalled", "stalls"];
pub(crate) const BUSY: &[&str] =
    &["busy", "high", "hot", "overloaded", "loaded", "heavy", "maxed", "saturated"];

pub(crate) const COUNT: [&[&str]; 5] =
    [&["how", "many"], &["number", "of"], &["count", "of"], &["count"], &["total", "number"]];
pub(crate) const AVERAGE: &[&str] = &["average", "avg", "mean", "averages"];
pub(crate) const SUM: &[&str] = &["sum", "total", "altogether"];
pub(crate) const HIGHEST: &[&str] =
    &["highest", "max", "maximum", "largest", "biggest", "peak", "top", "greatest", "most"];
pub(crate) const LOWEST: &[&str] = &["lowest", "min", "minimum", "smallest", "least", "cheapest"];
pub(crate) const LATEST: &[&str] = &["latest", "newest", "last", "recent", "recently"];
pub(crate) const OLDEST: &[&str] = &["oldest", "first", "earliest"];

/// Words before the name of a column to group by.
pub(crate) const GROUPED: &[&str] = &["by", "per", "each", "every"];

/// Phrases that ask for help.
pub(crate) const HELP: [&[&str]; 9] = [
    &["what", "can", "i", "ask"],
    &["what", "can", "you"],
    &["what", "do", "you", "know"],
    &["what", "is", "here"],
    &["what", "data"],
    &["which", "tables"],
    &["what", "tables"],
    &["list", "tables"],
    &["show", "tables"],
];

/// The used share from which a file system is nearly full.
pub(crate) const NEARLY_FULL_PERCENT: f64 = 90.0;
/// The used share from which a file system is full.
pub(crate) const FULL_PERCENT: f64 = 99.0;
/// The share from which CPU, disk or memory is busy, or high.
pub(crate) const BUSY_PERCENT: f64 = 80.0;
/// The duration from which a request is slow, in a question that names no number.
pub(crate) const SLOW_MICROS: f64 = 100_000.0;

/// Returns true if a word has a meaning by itself.
pub(crate) fn is_known(word: &str) -> bool {
    const LISTS: [&[&str]; 31] = [
        FILLERS,
        NEGATIONS,
        ASKING,
        NO_VALUES,
        FUTURE,
        ORDERS,
        MACHINE,
        CHANGED,
        CHANGE_NOUNS,
        REQUESTS,
        ERRORS,
        SLOW,
        SLOWEST,
        FASTEST,
        NOTES,
        DISK,
        SPACE,
        FULLNESS,
        ACTIVITY,
        MEMORY,
        SWAP,
        CPU,
        CORES,
        LOAD,
        NETWORK,
        PRESSURE,
        AVERAGE,
        SUM,
        HIGHEST,
        LOWEST,
        LATEST,
    ];
    LISTS.iter().any(|list| list.contains(&word))
}

/// Returns a word without its plural ending, so that `events` and `event` match.
pub(crate) fn singular(word: &str) -> String {
    let cut = |n: usize| word[..word.len() - n].to_owned();
    if word.len() > 4 && word.ends_with("ies") {
        return cut(3) + "y";
    }
    if word.len() > 4 && ["sses", "xes", "ches", "shes", "zes"].iter().any(|end| word.ends_with(end)) {
        return cut(2);
    }
    let keeps = ["ss", "us", "is"].iter().any(|end| word.ends_with(end));
    if word.len() > 3 && word.ends_with('s') && !keeps { cut(1) } else { word.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn singular_and_plural_meet() {
        for (one, many) in [
            ("event", "events"),
            ("entry", "entries"),
            ("process", "processes"),
            ("box", "boxes"),
            ("status", "status"),
            ("house", "houses"),
        ] {
            assert_eq!(singular(one), singular(many), "{one}");
        }
    }
}
