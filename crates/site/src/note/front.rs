//! Front matter: the YAML between two lines of `---` at the top of a note.
//!
//! It is read event by event, with limits on size, depth and number of values, and references (`*x`) are refused. So no
//! input costs more than its length. Values stay text: `description: 2024` is the text "2024" and not an error. Front
//! matter that cannot be read makes the note private.

use saphyr_parser::{Event, Parser, ScalarStyle};

/// The largest front matter that is read, in bytes.
pub(crate) const FRONT_BYTES_MAX: usize = 64 << 10;
const DEPTH_MAX: usize = 16;
const VALUES_MAX: usize = 4096;

/// The top-level keys in lower case with their values, in order.
pub(crate) type Front = Vec<(String, Value)>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    Null,
    Text(String),
    List(Vec<Value>),
    /// A mapping. Its content is dropped, since a site reads no nested values.
    Map,
}

impl Value {
    pub(crate) fn text(&self) -> Option<&str> {
        match self {
            Value::Text(text) => Some(text.trim()).filter(|text| !text.is_empty()),
            _ => None,
        }
    }

    /// Returns the texts of a list, or a single text.
    pub(crate) fn texts(&self) -> Vec<&str> {
        match self {
            Value::List(values) => values.iter().filter_map(Value::text).collect(),
            value => value.text().into_iter().collect(),
        }
    }
}

/// Splits a note into the text of its front matter, if it has any, and the rest. Fails if the front matter has no
/// closing line.
pub(crate) fn split(text: &str) -> Result<(Option<&str>, &str), String> {
    let is_fence = |line: &str| line.trim_end() == "---";
    let mut lines = text.split_inclusive('\n');
    let Some(first) = lines.next().filter(|line| is_fence(line)) else { return Ok((None, text)) };
    let mut at = first.len();
    let mut second = None;
    for line in lines {
        if is_fence(line) || line.trim_end() == "..." {
            return Ok((Some(&text[first.len()..at]), &text[at + line.len()..]));
        }
        second.get_or_insert(line);
        at += line.len();
    }
    // A horizontal rule looks the same. Only text with a key in its next line is taken for front matter.
    let is_key = |line: &str| {
        let key = line.split_once(':').map(|(key, _)| key.trim());
        key.is_some_and(|key| !key.is_empty() && key.chars().all(|c| c.is_alphanumeric() || "-_".contains(c)))
    };
    if second.is_some_and(is_key) {
        Err("the front matter has no closing line of `---`".to_owned())
    } else {
        Ok((None, text))
    }
}

/// Guesses the names (title and aliases) of a note whose front matter cannot be parsed, line by line. The note stays
/// private; the names serve to recognise links to it, so that they can be hidden.
pub(crate) fn guess_names(yaml: &str) -> Vec<String> {
    let mut names = Vec::new();
    let mut in_names = false;
    for line in yaml.lines().take(VALUES_MAX).take_while(|line| line.len() <= FRONT_BYTES_MAX) {
        let key = line.split_once(':').filter(|(key, _)| !line.starts_with([' ', '-']) && !key.contains(' '));
        let rest = match key {
            Some((key, rest)) => {
                in_names = matches!(&*key.trim().to_lowercase(), "title" | "alias" | "aliases");
                rest
            }
            None => line.trim().trim_start_matches("- "),
        };
        if in_names {
            let whole = rest.trim().trim_matches(['"', '\'', '[', ']']);
            let parts = rest.split(',').map(|part| part.trim().trim_matches(['"', '\'', '[', ']', ' ']));
            names.extend(parts.chain([whole]).filter(|name| !name.is_empty()).map(str::to_owned));
        }
        if names.len() > 256 {
            break;
        }
    }
    names
}

/// Parses front matter. The error is a sentence for the author.
pub(crate) fn parse(yaml: &str) -> Result<Front, String> {
    if yaml.len() > FRONT_BYTES_MAX {
        return Err(format!("the front matter is {} bytes, at most {FRONT_BYTES_MAX} are read", yaml.len()));
    }
    let mut reader = Reader { parser: Parser::new_from_str(yaml), values: 0 };
    loop {
        match reader.next()? {
            Event::MappingStart(..) => break,
            Event::StreamStart | Event::DocumentStart(_) | Event::Nothing => {}
            Event::StreamEnd | Event::DocumentEnd => return Ok(Front::new()),
            Event::Scalar(text, ScalarStyle::Plain, ..) if text.is_empty() || text == "~" => {}
            _ => return Err("the front matter is not a list of `key: value`".to_owned()),
        }
    }
    let front = reader.map()?;
    // A second document would be text that is never read.
    while let Some(event) = reader.parser.next_event() {
        match event.map_err(|error| sentence(&error))?.0 {
            Event::DocumentStart(_) => return Err("the front matter has a second document".to_owned()),
            Event::StreamEnd => break,
            _ => {}
        }
    }
    Ok(front)
}

struct Reader<'a> {
    parser: Parser<'a, saphyr_parser::StrInput<'a>>,
    values: usize,
}

impl<'a> Reader<'a> {
    fn next(&mut self) -> Result<Event<'a>, String> {
        self.values += 1;
        if self.values > 2 * VALUES_MAX {
            return Err(format!("the front matter has more than {VALUES_MAX} values"));
        }
        match self.parser.next_event() {
            Some(Ok((event, _))) => Ok(event),
            Some(Err(error)) => Err(sentence(&error)),
            None => Err("the front matter ends too early".to_owned()),
        }
    }

    fn map(&mut self) -> Result<Front, String> {
        let mut front = Front::new();
        loop {
            let key = match self.next()? {
                Event::MappingEnd => return Ok(front),
                Event::Scalar(key, ..) => key.trim().to_lowercase(),
                _ => return Err("a key of the front matter is not a text".to_owned()),
            };
            let value = self.value()?;
            front.push((key, value));
        }
    }

    /// Reads one value. Skips values nested inside a top-level list or mapping.
    fn value(&mut self) -> Result<Value, String> {
        let mut depth = 0usize;
        let mut list = Vec::new();
        let mut is_list = false;
        loop {
            match self.next()? {
                Event::Alias(_) => return Err("the front matter refers to itself (`*`)".to_owned()),
                Event::Scalar(text, style, ..) => {
                    let is_null = style == ScalarStyle::Plain && matches!(&*text, "" | "~" | "null");
                    let value = if is_null { Value::Null } else { Value::Text(text.into_owned()) };
                    match depth {
                        0 => return Ok(value),
                        1 if is_list => list.push(value),
                        _ => {}
                    }
                }
                Event::SequenceStart(..) | Event::MappingStart(..) if depth == DEPTH_MAX => {
                    return Err(format!("the front matter is nested more than {DEPTH_MAX} deep"));
                }
                Event::SequenceStart(..) => {
                    is_list |= depth == 0;
                    depth += 1;
                }
                Event::MappingStart(..) => depth += 1,
                Event::SequenceEnd | Event::MappingEnd => {
                    depth = depth.saturating_sub(1);
                    if depth == 0 {
                        return Ok(if is_list { Value::List(list) } else { Value::Map });
                    }
                }
                Event::StreamEnd | Event::DocumentEnd => {
                    return Err("the front matter ends too early".to_owned());
                }
                _ => {}
            }
        }
    }
}

fn sentence(error: &saphyr_parser::ScanError) -> String {
    // The message leaves out the surrounding text: warnings go to the log, and the content of a note must not.
    format!(
        "the front matter is not YAML: line {}, column {}: {}",
        error.marker().line() + 1,
        error.marker().col() + 1,
        error.info()
    )
}
