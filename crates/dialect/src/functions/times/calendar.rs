//! The Gregorian calendar over microseconds since 1970-01-01, over the whole range of an int64. Functions return `None` beyond
//! that range.

pub(super) const DAY: i64 = 86_400_000_000;

/// The unit to which a time is truncated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    /// A number of microseconds, up to a day.
    Fixed(i64),
    /// A week, which begins on Monday.
    Week,
    Months(i64),
}

impl Unit {
    pub const NAMES: &str = "microsecond, millisecond, second, minute, hour, day, week, month, quarter, year";

    pub fn named(name: &str) -> Option<Unit> {
        Some(match name.to_ascii_lowercase().as_str() {
            "microsecond" => Unit::Fixed(1),
            "millisecond" => Unit::Fixed(1_000),
            "second" => Unit::Fixed(1_000_000),
            "minute" => Unit::Fixed(60_000_000),
            "hour" => Unit::Fixed(3_600_000_000),
            "day" => Unit::Fixed(DAY),
            "week" => Unit::Week,
            "month" => Unit::Months(1),
            "quarter" => Unit::Months(3),
            "year" => Unit::Months(12),
            _ => return None,
        })
    }

    /// Returns true if the unit begins at the same moments in all zones whose offset is in whole minutes.
    pub fn is_below_hours(self) -> bool {
        matches!(self, Unit::Fixed(..=60_000_000))
    }
}

/// Returns the beginning of the unit that contains a time.
pub(super) fn cut(time: i64, unit: Unit) -> Option<i64> {
    match unit {
        Unit::Fixed(width) => time.checked_sub(time.rem_euclid(width)),
        Unit::Week => {
            let day = time.div_euclid(DAY);
            // 1970-01-01 was a Thursday.
            (day - (day + 3).rem_euclid(7)).checked_mul(DAY)
        }
        Unit::Months(count) => {
            let (month, _) = month_and_day(time.div_euclid(DAY));
            first_of(month - month.rem_euclid(count)).checked_mul(DAY)
        }
    }
}

/// Returns the beginning of the step that contains a time. Steps are `width` nanoseconds wide, and one of them begins at
/// `origin`.
pub(super) fn bin(time: i64, width: i64, origin: i64) -> Option<i64> {
    if width % 1_000 == 0 {
        let beyond = time.checked_sub(origin)?.rem_euclid(width / 1_000);
        return time.checked_sub(beyond);
    }
    let distance = (i128::from(time) - i128::from(origin)) * 1_000;
    let begin = i128::from(origin) * 1_000 + distance - distance.rem_euclid(i128::from(width));
    i64::try_from(begin.div_euclid(1_000)).ok()
}

/// Returns the beginning of the step that contains a time, for steps of whole months. Each step begins a multiple of `width`
/// months after `origin`, or on the last day of a month that is too short.
pub(super) fn bin_months(time: i64, width: i64, origin: i64) -> Option<i64> {
    let month_of = |time: i64| month_and_day(time.div_euclid(DAY)).0;
    let months = (month_of(time) - month_of(origin)).div_euclid(width) * width;
    match plus_months(origin, months)? {
        begin if begin <= time => Some(begin),
        _ => plus_months(origin, months - width),
    }
}

pub(super) fn plus_months(time: i64, months: i64) -> Option<i64> {
    let (month, day) = month_and_day(time.div_euclid(DAY));
    let (this, next) = (first_of(month + months), first_of(month + months + 1));
    (this + day.min(next - this - 1)).checked_mul(DAY)?.checked_add(time.rem_euclid(DAY))
}

/// Splits a day since 1970-01-01 into months since January of the year 0, and days since the first of the month. This function
/// and its inverse are by H. Hinnant, "chrono-compatible low-level date algorithms" (2013): years begin in March, so that the
/// leap day is the last.
fn month_and_day(day: i64) -> (i64, i64) {
    let day = day + 719_468;
    let era = day.div_euclid(146_097);
    let day = day.rem_euclid(146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let of_year = day - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    ((era * 400 + year) * 12 + month + 2, of_year - (153 * month + 2) / 5)
}

/// Returns the first day of a month.
fn first_of(month: i64) -> i64 {
    let since_march = month - 2;
    let (year, month) = (since_march.div_euclid(12), since_march.rem_euclid(12));
    let (era, year) = (year.div_euclid(400), year.rem_euclid(400));
    let of_year = (153 * month + 2) / 5;
    era * 146_097 + year * 365 + year / 4 - year / 100 + of_year - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_day_has_its_month() {
        let is_leap = |year: i64| year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
        // The days from 0001-01-01 to 9999-12-31.
        let (mut year, mut month, mut day) = (1, 0, 0);
        for at in -719_162..=2_932_896 {
            assert_eq!(month_and_day(at), (year * 12 + month, day), "{at}");
            if day == 0 {
                assert_eq!(first_of(year * 12 + month), at);
            }
            let days = match month {
                1 if is_leap(year) => 29,
                1 => 28,
                3 | 5 | 8 | 10 => 30,
                _ => 31,
            };
            day += 1;
            if day == days {
                (month, day) = (month + 1, 0);
            }
            if month == 12 {
                (year, month) = (year + 1, 0);
            }
        }
        assert_eq!((year, month, day), (10_000, 0, 0));
    }

    #[test]
    fn no_time_is_too_far_off_to_be_asked_about() {
        for time in [i64::MIN, i64::MIN + 1, -1, 0, i64::MAX] {
            for unit in [Unit::Fixed(1), Unit::Fixed(DAY), Unit::Week, Unit::Months(1), Unit::Months(12)] {
                let cut = cut(time, unit);
                assert!(cut.is_none_or(|begin| begin <= time), "{time} {unit:?}: {cut:?}");
            }
            for origin in [i64::MIN, 0, i64::MAX] {
                for width in [1, 999, 1_000, 1_500, 86_400_000_000_000, i64::MAX] {
                    let begin = bin(time, width, origin);
                    assert!(begin.is_none_or(|begin| begin <= time), "{time} {width} {origin}");
                }
                for months in [1, 5, i64::from(i32::MAX)] {
                    let begin = bin_months(time, months, origin);
                    assert!(begin.is_none_or(|begin| begin <= time), "{time} {months} {origin}");
                }
            }
        }
    }

    #[test]
    fn a_step_holds_its_times_and_the_next_begins_where_it_ends() {
        let mut rng = testkit::Rng::new(1);
        let mut time = || (rng.below(10_000 * 366) as i64 - 719_162) * DAY + rng.below(DAY as u64) as i64;
        for _ in 0..20_000 {
            let (at, origin) = (time(), time());
            for months in [1, 2, 7, 12, 100] {
                let begin = bin_months(at, months, origin).unwrap();
                assert!(begin <= at);
                // A step begins on the origin's day of the month, or on the last day of its month.
                let (of_origin, of_begin) =
                    (month_and_day(origin.div_euclid(DAY)), month_and_day(begin.div_euclid(DAY)));
                assert_eq!((of_begin.0 - of_origin.0) % months, 0);
                assert!(at < plus_months(origin, of_begin.0 - of_origin.0 + months).unwrap());
            }
            for width in [1_000, 60_000_000_000, 7 * DAY * 1_000] {
                let begin = bin(at, width, origin).unwrap();
                assert!(begin <= at && at < begin + width / 1_000 && (begin - origin) % (width / 1_000) == 0);
            }
        }
    }
}
