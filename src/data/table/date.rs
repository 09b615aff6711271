//! Dates as days since an origin.

use time::{
    Duration, OffsetDateTime, PrimitiveDateTime, format_description::well_known::Iso8601,
    macros::datetime,
};

use super::cell::Cell;

const EPOCH: OffsetDateTime = datetime!(1970-01-01 0:00 UTC);
const NANOSECONDS_A_SECOND: i128 = 1_000_000_000;
const NANOSECONDS_A_DAY: f64 = 86_400e9;

/// A date, or a date with a time, in nanoseconds since 1970-01-01 in UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment(i128);

/// What dates need near them so that an `f32` of days from it holds their time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Origin {
    /// Days since 1970-01-01 are exact.
    Usual,
    Day,
    /// They have fractions of seconds: `f32` holds milliseconds within a day.
    Second,
}

/// The moment of a cell; a time without a zone is in UTC.
pub(crate) fn date(cell: Cell<'_>) -> Option<Moment> {
    let Cell::Text(text) = cell else { return None };
    moment(text)
}

/// The same of a text.
pub(crate) fn moment(text: &[u8]) -> Option<Moment> {
    let text = std::str::from_utf8(text).ok()?;
    // The parser also accepts weeks and days of the year, which tables rarely mean.
    let dashes = text.get(4..5) == Some("-") && text.get(7..8) == Some("-");
    if !dashes || text.len() > 40 {
        return None;
    }
    if text.len() == 10 {
        let date = time::Date::parse(text, &Iso8601::DATE).ok()?;
        return Some(Moment((date - EPOCH.date()).whole_nanoseconds()));
    }
    // A blank between date and time, as spreadsheets write it.
    let joined = text.replacen(' ', "T", 1);
    // The parser accepts zones up to 25:59; those of the world are from -12:00 to +14:00.
    let moment = OffsetDateTime::parse(&joined, &Iso8601::DATE_TIME_OFFSET)
        .or_else(|_| {
            PrimitiveDateTime::parse(&joined, &Iso8601::DATE_TIME)
                .map(PrimitiveDateTime::assume_utc)
        })
        .ok()
        .filter(|moment| moment.offset().whole_hours().abs() < 24)?;
    Some(Moment((moment - EPOCH).whole_nanoseconds()))
}

impl Moment {
    /// The days from an origin, which 1970-01-01 is if there is none.
    pub(crate) fn days_since(self, origin: Option<Moment>) -> f64 {
        (self.0 - origin.map_or(0, |origin| origin.0)) as f64 / NANOSECONDS_A_DAY
    }

    /// What it needs.
    pub(crate) fn origin(self) -> Origin {
        let days = self.days_since(None);
        if f64::from(days as f32) == days {
            Origin::Usual
        } else if self.0 % NANOSECONDS_A_SECOND == 0 {
            Origin::Day
        } else {
            Origin::Second
        }
    }

    /// The text of the day or the second in which it is, such as `2024-05-17`.
    pub(crate) fn text(self, origin: Origin) -> Option<String> {
        let seconds = i64::try_from(self.0.div_euclid(NANOSECONDS_A_SECOND)).ok()?;
        let moment = EPOCH.checked_add(Duration::seconds(seconds))?;
        let (year, month, day) = moment.to_calendar_date();
        let (hour, minute, second) = moment.to_hms();
        let date = format!("{year:04}-{:02}-{day:02}", u8::from(month));
        (0..=9999).contains(&year).then(|| match origin {
            Origin::Usual | Origin::Day => date,
            Origin::Second => format!("{date}T{hour:02}:{minute:02}:{second:02}Z"),
        })
    }
}
