//! Times in questions and answers. All are in UTC, and answers say so.

use types::Micros;

use crate::words::Words;

pub(crate) const SECOND: Micros = 1_000_000;
pub(crate) const MINUTE: Micros = 60 * SECOND;
pub(crate) const HOUR: Micros = 60 * MINUTE;
pub(crate) const DAY: Micros = 24 * HOUR;

/// The period that a question is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    pub from: Micros,
    /// The exclusive end; `None`: until now.
    pub to: Option<Micros>,
    /// The period as answers name it: `in the last hour`.
    pub phrase: String,
}

/// A time found in a question.
pub(crate) struct FoundWindow {
    pub window: Window,
    /// The positions of its words.
    pub position: std::ops::Range<usize>,
    /// True for a date by itself, which may be a text too.
    pub is_day: bool,
}

/// Finds the time in a question and marks its words.
pub(crate) fn window(words: &mut Words, now: Micros) -> Option<FoundWindow> {
    (0..words.len()).find_map(|at| {
        let found = at_word(words, at, now).map(|(window, end)| (window, end, false));
        let (window, end, is_day) =
            found.or_else(|| day_at(words, at).map(|(window, end)| (window, end, true)))?;
        // `in the last hour`, `over the past day`: the words before belong to it.
        let mut start = at;
        while start > 0
            && !words.list[start - 1].is_code()
            && match words.at(start - 1) {
                "in" | "during" | "for" | "on" | "of" | "the" => true,
                "within" | "over" => !is_day,
                "at" | "from" => is_day,
                _ => false,
            }
        {
            start -= 1;
        }
        words.mark(start..end);
        Some(FoundWindow { window, position: start..end, is_day })
    })
}

/// Returns true if the words of a time begin at `at`.
pub(crate) fn begins(words: &Words, at: usize, now: Micros) -> bool {
    at_word(words, at, now).is_some()
}

/// Parses a date, or a moment with a date: `2026-11-20`, `2026-11-20 14:00`.
fn day_at(words: &Words, at: usize) -> Option<(Window, usize)> {
    let of_day = date(words.at(at)).is_some().then(|| time_of_day(words.at(at + 1))).flatten();
    match (of_day, window_of_word(words.at(at))) {
        (Some(of_day), Some(day)) => Some((moment_of(day.from + of_day), at + 2)),
        (None, Some(window)) => Some((window, at + 1)),
        _ => None,
    }
}

/// Returns the window of `2026-11-20` or `2026-11-20T14:00:00Z`.
pub(crate) fn window_of_word(word: &str) -> Option<Window> {
    let word = word.to_lowercase();
    if let Some(from) = date(&word) {
        return Some(Window { from, to: Some(from + DAY), phrase: format!("on {} (UTC)", day(from)) });
    }
    timestamp(&word).map(moment_of)
}

/// Returns the window of a moment: one minute, or one second if the text names seconds.
fn moment_of(from: Micros) -> Window {
    let length = if from.rem_euclid(MINUTE) == 0 { MINUTE } else { SECOND };
    Window { from, to: Some(from + length), phrase: format!("at {}", format_time(from)) }
}

/// Returns the date of a time: `2026-11-20`.
fn day(time: Micros) -> String {
    rfc3339(time)[..].split('T').next().unwrap_or_default().to_owned()
}

fn at_word(words: &Words, at: usize, now: Micros) -> Option<(Window, usize)> {
    let midnight = now.div_euclid(DAY) * DAY;
    let window = |from: Micros, to: Option<Micros>, phrase: String, end: usize| {
        Some((Window { from, to, phrase }, end))
    };
    // Returns the end of a day named by its date, for windows that include that day or begin after it.
    let day_end = |at: usize| {
        let (time, end) = moment(words, at, now)?;
        let is_day = end == at + 1 && date(words.at(at)).is_some();
        Some((if is_day { time + DAY } else { time }, end, is_day))
    };
    let since = |at: usize| {
        let (from, end) = moment(words, at, now)?;
        window(from, None, format!("since {}", format_time(from)), end)
    };
    let before = |at: usize| {
        let (to, end) = moment(words, at, now)?;
        window(Micros::MIN, Some(to), format!("before {}", format_time(to)), end)
    };
    let after = |at: usize| {
        let (from, end, is_day) = day_end(at)?;
        let phrase = if is_day {
            format!("after {} (UTC)", day(from - DAY))
        } else {
            format!("since {}", format_time(from))
        };
        window(from, None, phrase, end)
    };
    let until = |at: usize| {
        let (to, end, is_day) = day_end(at)?;
        let phrase = if is_day {
            format!("until {} (UTC)", day(to - DAY))
        } else {
            format!("before {}", format_time(to))
        };
        window(Micros::MIN, Some(to), phrase, end)
    };
    for (phrase, included) in [("after", true), ("before", false)] {
        if words.starts(at, &["on", "or", phrase]) {
            return if included { since(at + 3) } else { until(at + 3) };
        }
    }
    if words.at(at + 1) == "than" {
        return match words.at(at) {
            "newer" | "later" | "younger" => after(at + 2),
            "older" | "earlier" => before(at + 2),
            _ => None,
        };
    }
    match words.at(at) {
        "day" if words.starts(at + 1, &["before", "yesterday"]) => {
            let from = midnight - 2 * DAY;
            window(from, Some(from + DAY), format!("on {} (UTC)", day(from)), at + 3)
        }
        "last" | "past" | "previous" => {
            let (count, unit_at) = match count(words.at(at + 1)) {
                Some(count) => (count, at + 2),
                None => (1, at + 1),
            };
            let (length, unit) = unit(words.at(unit_at))?;
            let phrase = match count {
                1 => format!("in the last {unit}"),
                n => format!("in the last {n} {unit}s"),
            };
            window(now.saturating_sub(length.saturating_mul(count)), None, phrase, unit_at + 1)
        }
        "today" => window(midnight, None, "today (UTC)".into(), at + 1),
        "yesterday" => window(midnight - DAY, Some(midnight), "yesterday (UTC)".into(), at + 1),
        "this" => match words.at(at + 1) {
            "hour" => window(now.div_euclid(HOUR) * HOUR, None, "this hour".into(), at + 2),
            "day" => window(midnight, None, "today (UTC)".into(), at + 2),
            "morning" => {
                let noon = midnight + 12 * HOUR;
                window(midnight, (noon < now).then_some(noon), "this morning (UTC)".into(), at + 2)
            }
            "afternoon" => window(midnight + 12 * HOUR, None, "this afternoon (UTC)".into(), at + 2),
            "week" => {
                // 1970-01-01 was a Thursday.
                let days_since_monday = (now.div_euclid(DAY) + 3).rem_euclid(7);
                window(midnight - days_since_monday * DAY, None, "this week (UTC)".into(), at + 2)
            }
            "month" => {
                let (year, month, _) = civil(now.div_euclid(DAY));
                window(days(year, month, 1) * DAY, None, "this month (UTC)".into(), at + 2)
            }
            _ => None,
        },
        "since" | ">=" | "=>" => since(at + 1),
        "after" | ">" => after(at + 1),
        "before" | "<" => before(at + 1),
        "until" | "till" | "through" | "<=" | "=<" => until(at + 1),
        // `up to` a date; with a number it is a comparison.
        "to" | "by" if date(words.at(at + 1)).is_some() => until(at + 1),
        "=" => day_at(words, at + 1),
        first @ ("between" | "from") => {
            let (from, middle) = moment(words, at + 1, now)?;
            let is_joined = match words.at(middle) {
                "and" => first == "between",
                "to" | "until" | "till" | "through" => first == "from",
                _ => false,
            };
            if !is_joined {
                return None;
            }
            // The last day is included.
            let (to, end, is_day) = day_end(middle + 1)?;
            if is_day && date(words.at(at + 1)).is_some() {
                let phrase = format!("from {} to {} (UTC)", day(from), day(to - DAY));
                return window(from, Some(to), phrase, end);
            }
            let to = if to < from { to.saturating_add(DAY) } else { to };
            window(from, Some(to), format!("between {} and {}", format_time(from), format_time(to)), end)
        }
        _ => {
            // `10 minutes ago` means since then.
            let count = count(words.at(at))?;
            let (length, unit) = unit(words.at(at + 1))?;
            if words.at(at + 2) != "ago" {
                return None;
            }
            let from = now.saturating_sub(length.saturating_mul(count));
            let s = if count == 1 { "" } else { "s" };
            window(from, None, format!("since {count} {unit}{s} ago"), at + 3)
        }
    }
}

/// Parses a moment: `14:00`, `2pm`, `2026-11-21`, `2026-11-21 14:00`, `2026-11-21T14:00:00Z`, `yesterday`, `today`, `midnight`,
/// `noon`, `10 minutes ago`. A time of day is the most recent one that has passed.
fn moment(words: &Words, at: usize, now: Micros) -> Option<(Micros, usize)> {
    let midnight = now.div_euclid(DAY) * DAY;
    let passed = |of_day: Micros| {
        let today = midnight + of_day;
        if today > now { today - DAY } else { today }
    };
    let word = words.at(at);
    match word {
        "midnight" | "today" => return Some((midnight, at + 1)),
        "noon" => return Some((passed(12 * HOUR), at + 1)),
        "yesterday" => return Some((midnight - DAY, at + 1)),
        _ => {}
    }
    if let Some(of_day) = time_of_day(word) {
        return Some((passed(of_day), at + 1));
    }
    // `2 pm`.
    if matches!(words.at(at + 1), "am" | "pm")
        && let Some(of_day) = time_of_day(&format!("{word}{}", words.at(at + 1)))
    {
        return Some((passed(of_day), at + 2));
    }
    if let Some(count) = count(word)
        && let Some((length, _)) = unit(words.at(at + 1))
        && words.at(at + 2) == "ago"
    {
        return Some((now.saturating_sub(length.saturating_mul(count)), at + 3));
    }
    if let Some(whole) = timestamp(word) {
        return Some((whole, at + 1));
    }
    let date = date(word)?;
    match time_of_day(words.at(at + 1)) {
        Some(of_day) => Some((date + of_day, at + 2)),
        None => Some((date, at + 1)),
    }
}

fn count(word: &str) -> Option<i64> {
    const WORDS: [(&str, i64); 17] = [
        ("a", 1),
        ("an", 1),
        ("one", 1),
        ("two", 2),
        ("couple", 2),
        ("three", 3),
        ("few", 3),
        ("four", 4),
        ("five", 5),
        ("six", 6),
        ("seven", 7),
        ("eight", 8),
        ("nine", 9),
        ("ten", 10),
        ("twelve", 12),
        ("fifteen", 15),
        ("thirty", 30),
    ];
    let number = || word.parse().ok().filter(|n| (1..=1_000_000).contains(n));
    WORDS.iter().find(|(name, _)| *name == word).map(|(_, n)| *n).or_else(number)
}

fn unit(word: &str) -> Option<(Micros, &'static str)> {
    Some(match word {
        "second" | "seconds" | "sec" | "secs" | "s" => (SECOND, "second"),
        "minute" | "minutes" | "min" | "mins" => (MINUTE, "minute"),
        "hour" | "hours" | "h" | "hr" | "hrs" => (HOUR, "hour"),
        "day" | "days" | "d" => (DAY, "day"),
        "week" | "weeks" => (7 * DAY, "week"),
        "month" | "months" => (30 * DAY, "month"),
        "year" | "years" => (365 * DAY, "year"),
        _ => return None,
    })
}

/// Parses `14:00`, `14:00:30`, `2pm` or `2:30pm`, with or without `z`.
fn time_of_day(word: &str) -> Option<Micros> {
    let word = word.strip_suffix('z').unwrap_or(word);
    let (word, half) = match (word.strip_suffix("am"), word.strip_suffix("pm")) {
        (Some(rest), _) => (rest, Some(0)),
        (_, Some(rest)) => (rest, Some(12)),
        _ => (word, None),
    };
    let mut parts = word.split(':');
    let number = |text: Option<&str>, max: i64| -> Option<i64> {
        let text = text?;
        let plain = (1..=2).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
        text.parse().ok().filter(|n| plain && *n <= max)
    };
    let mut hour = number(parts.next(), 23)?;
    let minute = match parts.next() {
        // A bare number is not a time of day.
        None if half.is_none() => return None,
        None => 0,
        part => number(part, 59)?,
    };
    let second = match parts.next() {
        None => 0,
        part => number(part, 59)?,
    };
    if parts.next().is_some() {
        return None;
    }
    if let Some(half) = half {
        if !(1..=12).contains(&hour) {
            return None;
        }
        hour = hour % 12 + half;
    }
    Some(hour * HOUR + minute * MINUTE + second * SECOND)
}

/// Parses `2026-11-21`.
fn date(word: &str) -> Option<Micros> {
    let mut parts = word.split('-');
    let mut number = |len: usize| -> Option<i64> {
        let part = parts.next()?;
        (part.len() == len && part.bytes().all(|b| b.is_ascii_digit())).then(|| part.parse().ok())?
    };
    let (year, month, day) = (number(4)?, number(2)?, number(2)?);
    let wanted = days(year, month, day);
    (parts.next().is_none() && civil(wanted) == (year, month, day)).then_some(wanted * DAY)
}

/// Parses `2026-11-21t14:00:00z`.
fn timestamp(word: &str) -> Option<Micros> {
    let (day, time) = word.split_once('t')?;
    Some(date(day)? + time_of_day(time)?)
}

/// Returns the days from 1970-01-01 to a date of the proleptic Gregorian calendar.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// Returns the date of a day counted from 1970-01-01.
fn civil(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let of_era = shifted.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

/// Formats a time as everywhere on the wire: `2026-11-21T14:03:05.123456Z`.
pub(crate) fn rfc3339(time: Micros) -> String {
    let (year, month, day) = civil(time.div_euclid(DAY));
    let of_day = time.rem_euclid(DAY);
    let (hour, minute, second) = (of_day / HOUR, of_day / MINUTE % 60, of_day / SECOND % 60);
    let micros = of_day % SECOND;
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{micros:06}Z")
}

/// Formats a time for sentences: `2026-11-21 14:03:05 UTC`.
pub(crate) fn format_time(time: Micros) -> String {
    let text = rfc3339(time);
    format!("{} {} UTC", &text[..text.len() - 17], &text[text.len() - 16..text.len() - 8])
}

/// Formats a duration in its two largest units: `3 h 20 min`.
pub(crate) fn format_duration(micros: Micros) -> String {
    let seconds = micros.max(0) / SECOND;
    let two = |large: i64, large_name: &str, small: i64, small_name: &str| match small {
        0 => format!("{large} {large_name}"),
        _ => format!("{large} {large_name} {small} {small_name}"),
    };
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3_600 => two(seconds / 60, "min", seconds % 60, "s"),
        3_600..86_400 => two(seconds / 3_600, "h", seconds / 60 % 60, "min"),
        _ => two(seconds / 86_400, "d", seconds / 3_600 % 24, "h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2026-11-21T14:30:00Z, a Saturday.
    const NOW: Micros = 1_795_271_400 * SECOND;

    fn found(text: &str) -> Option<(String, String, String)> {
        let mut words = Words::of(text);
        let FoundWindow { window, .. } = window(&mut words, NOW)?;
        let left: Vec<&str> = words.unused().iter().map(|word| word.text.as_str()).collect();
        let to = window.to.map_or("now".into(), format_time);
        let from = if window.from == Micros::MIN { "ever".into() } else { format_time(window.from) };
        Some((from, to, left.join(" ")))
    }

    #[test]
    fn times_are_found_and_their_words_taken() {
        let cases = [
            ("what changed in the last hour", "2026-11-21 13:30:00 UTC", "now", "what changed"),
            ("errors in the past 30 minutes?", "2026-11-21 14:00:00 UTC", "now", "errors"),
            ("over the last two days", "2026-11-19 14:30:00 UTC", "now", ""),
            ("changed today", "2026-11-21 00:00:00 UTC", "now", "changed"),
            ("events yesterday", "2026-11-20 00:00:00 UTC", "2026-11-21 00:00:00 UTC", "events"),
            ("since 14:00", "2026-11-21 14:00:00 UTC", "now", ""),
            ("since 15:00", "2026-11-20 15:00:00 UTC", "now", ""),
            ("since 2pm", "2026-11-21 14:00:00 UTC", "now", ""),
            ("since 2 pm", "2026-11-21 14:00:00 UTC", "now", ""),
            ("since 2026-11-20 08:15", "2026-11-20 08:15:00 UTC", "now", ""),
            ("after 2026-11-20T08:15:00Z", "2026-11-20 08:15:00 UTC", "now", ""),
            ("between 09:00 and 10:00", "2026-11-21 09:00:00 UTC", "2026-11-21 10:00:00 UTC", ""),
            ("between 23:00 and 01:00", "2026-11-20 23:00:00 UTC", "2026-11-21 01:00:00 UTC", ""),
            ("since 10 minutes ago", "2026-11-21 14:20:00 UTC", "now", ""),
            ("what happened 10 minutes ago", "2026-11-21 14:20:00 UTC", "now", "what happened"),
            ("this week", "2026-11-16 00:00:00 UTC", "now", ""),
            ("this month", "2026-11-01 00:00:00 UTC", "now", ""),
            ("this morning", "2026-11-21 00:00:00 UTC", "2026-11-21 12:00:00 UTC", ""),
            ("before noon", "ever", "2026-11-21 12:00:00 UTC", ""),
            ("on 2026-11-20", "2026-11-20 00:00:00 UTC", "2026-11-21 00:00:00 UTC", ""),
            ("placed 2026-11-20?", "2026-11-20 00:00:00 UTC", "2026-11-21 00:00:00 UTC", "placed"),
            ("at 2026-11-20 10:00", "2026-11-20 10:00:00 UTC", "2026-11-20 10:01:00 UTC", ""),
            ("after 2026-11-20", "2026-11-21 00:00:00 UTC", "now", ""),
            ("> 2026-11-20", "2026-11-21 00:00:00 UTC", "now", ""),
            ("since 2026-11-20", "2026-11-20 00:00:00 UTC", "now", ""),
            ("on or after 2026-11-20", "2026-11-20 00:00:00 UTC", "now", ""),
            ("before 2026-11-20", "ever", "2026-11-20 00:00:00 UTC", ""),
            ("on or before 2026-11-20", "ever", "2026-11-21 00:00:00 UTC", ""),
            ("until 2026-11-20", "ever", "2026-11-21 00:00:00 UTC", ""),
            ("from 2026-11-19 to 2026-11-20", "2026-11-19 00:00:00 UTC", "2026-11-21 00:00:00 UTC", ""),
            ("between 2026-11-19 and 2026-11-20", "2026-11-19 00:00:00 UTC", "2026-11-21 00:00:00 UTC", ""),
            ("older than 2026-11-20", "ever", "2026-11-20 00:00:00 UTC", ""),
            ("the day before yesterday", "2026-11-19 00:00:00 UTC", "2026-11-20 00:00:00 UTC", ""),
        ];
        for (text, from, to, left) in cases {
            assert_eq!(found(text), Some((from.into(), to.into(), left.into())), "{text}");
        }
    }

    #[test]
    fn words_that_are_not_a_time_are_left_alone() {
        for text in [
            "the last request",
            "the last 5 events",
            "since forever",
            "24 hour clock",
            "this server",
            "since 25:00",
            "since 2026-02-30",
            "14:00",
            "a day",
            "on 2026-11-31",
            "2026-11",
            "up to 5",
            "price > 10",
        ] {
            assert_eq!(found(text), None, "{text}");
        }
    }

    #[test]
    fn dates_go_there_and_back() {
        for day in (-800_000..800_000).step_by(317) {
            let (year, month, date) = civil(day);
            assert_eq!(days(year, month, date), day);
        }
        assert_eq!(rfc3339(NOW + 5), "2026-11-21T14:30:00.000005Z");
        assert_eq!(
            (format_duration(59 * SECOND), format_duration(3 * HOUR + 20 * MINUTE)),
            ("59 s".into(), "3 h 20 min".into())
        );
    }
}
