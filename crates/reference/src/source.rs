//! Types and their comments, as their sources have them.

/// The sources in which types are looked for.
const SOURCES: [&str; 12] = [
    include_str!("../../../src/experiment/sections.rs"),
    include_str!("../../../src/experiment/network.rs"),
    include_str!("../../../src/learn/model.rs"),
    include_str!("../../../src/learn/optimizer_config.rs"),
    include_str!("../../../src/learn/schedule.rs"),
    include_str!("../../../src/run/node_file.rs"),
    include_str!("../../../src/net/relay/file.rs"),
    include_str!("../../../src/mixing/file/mod.rs"),
    include_str!("../../../src/mixing/file/toml.rs"),
    include_str!("../../study/src/file.rs"),
    include_str!("../../study/src/figure.rs"),
    include_str!("../../study/src/expect.rs"),
];

/// A struct or an enum.
pub(super) struct Type {
    /// The text of its documentation.
    pub about: String,
    /// Its attributes, one behind the other.
    attributes: String,
    /// Its fields or variants, in order.
    pub fields: Vec<Field>,
}

/// A field or a variant.
pub(super) struct Field {
    /// As Rust has it, before serde renames it.
    pub name: String,
    /// The type of a field, without `Option` and the like; empty for a variant.
    pub kind: String,
    /// What its comment says before `Accepts:` and `Default:`.
    pub meaning: String,
    /// What its comment says behind `Accepts:`.
    pub accepts: Option<String>,
    /// What its comment says behind `Default:`.
    pub default: Option<String>,
    /// Whether a file must have it.
    pub required: bool,
}

impl Type {
    /// The type of this name. Fields that no file has (`#[serde(skip)]`) are left out.
    ///
    /// # Panics
    /// If no source has it: a type was renamed.
    pub(crate) fn find(name: &str) -> Type {
        let openings = [format!("struct {name} {{\n"), format!("enum {name} {{\n")];
        let found = SOURCES.iter().find_map(|text| {
            let at = openings.iter().find_map(|opening| text.find(opening))?;
            Some((text, at))
        });
        let (text, at) = found.unwrap_or_else(|| panic!("no source has the type {name}"));
        let start = text[..at].rfind('\n').map_or(0, |end| end + 1);
        let (mut about, mut attributes) = (Vec::new(), Vec::new());
        for line in text[..start].lines().rev() {
            match line.strip_prefix("///") {
                Some(words) => about.insert(0, words),
                None if line.starts_with("#[") => attributes.push(line),
                None => break,
            }
        }
        let attributes = attributes.join(" ");
        let defaults = attributes.contains("default)") || attributes.contains("(default,");
        let lines = text[at..].lines().skip(1).take_while(|line| *line != "}");
        Type { about: words(&about), attributes, fields: fields(lines, defaults) }
    }

    /// The variants as a file names them, with their meanings.
    pub(crate) fn variants(&self) -> Vec<(String, &str)> {
        let between = match &self.attributes {
            attributes if attributes.contains("snake_case") => "_",
            attributes if attributes.contains("\"lowercase\"") => "",
            _ => "-",
        };
        let one = |field: &Field| separated(&field.name, between);
        self.fields.iter().map(|field| (one(field), field.meaning.as_str())).collect()
    }
}

/// The fields of a type. `defaults`: whether the type has a default for each.
fn fields<'a>(lines: impl Iterator<Item = &'a str>, defaults: bool) -> Vec<Field> {
    let (mut found, mut comment, mut attributes) = (Vec::new(), Vec::new(), String::new());
    for line in lines.map(str::trim) {
        if let Some(words) = line.strip_prefix("///") {
            comment.push(words);
        } else if line.starts_with("#[") {
            attributes += line;
        } else if !line.is_empty() {
            let [meaning, accepts, default] = parts(&words(&comment)).map(Some);
            let some = |text: Option<String>| text.filter(|text| !text.is_empty());
            let line = line.trim_start_matches("pub ").trim_end_matches(',');
            let (name, kind) = line.split_once(": ").unwrap_or((line, ""));
            let optional = defaults || kind.starts_with("Option<");
            let default = some(default);
            let required = !optional && !attributes.contains("serde(default") && default.is_none();
            if !attributes.contains("serde(skip)") {
                found.push(Field {
                    name: name.to_string(),
                    kind: inner(inner(kind, "Option"), "Spanned").to_string(),
                    meaning: meaning.unwrap_or_default(),
                    accepts: some(accepts),
                    default,
                    required,
                });
            }
            (comment, attributes) = (Vec::new(), String::new());
        }
    }
    found
}

/// `T` of `Outer<T>`; any other type as it is.
fn inner<'a>(kind: &'a str, outer: &str) -> &'a str {
    let rest = kind.strip_prefix(outer).and_then(|rest| rest.strip_prefix('<'));
    rest.and_then(|rest| rest.strip_suffix('>')).unwrap_or(kind)
}

/// Lines of a comment as one.
fn words(lines: &[&str]) -> String {
    lines.iter().flat_map(|line| line.split_whitespace()).collect::<Vec<_>>().join(" ")
}

/// What stands before and behind `Accepts:` and `Default:`, in whichever order they come.
fn parts(comment: &str) -> [String; 3] {
    const MARKS: [&str; 2] = ["Accepts: ", "Default: "];
    let mut parts: [String; 3] = Default::default();
    let (mut part, mut rest) = (0, comment);
    loop {
        let marks = MARKS.iter().enumerate();
        let next = marks.filter_map(|(index, mark)| Some((rest.find(mark)?, index))).min();
        let end = next.map_or(rest.len(), |(at, _)| at);
        let text = rest[..end].trim();
        // Behind a mark stands no sentence: it becomes a cell of a table.
        parts[part] = if part == 0 { text } else { text.trim_end_matches('.') }.to_string();
        let Some((at, index)) = next else { return parts };
        (part, rest) = (index + 1, &rest[at + MARKS[index].len()..]);
    }
}

/// `ByLabel` as `by-label`, if `between` is a hyphen.
fn separated(name: &str, between: &str) -> String {
    let mut text = String::new();
    for (at, c) in name.char_indices() {
        if c.is_uppercase() && at > 0 {
            text.push_str(between);
        }
        text.extend(c.to_lowercase());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comment_is_cut_at_its_marks_in_either_order() {
        let cut = |comment: &str| parts(comment);
        assert_eq!(cut("How many. Accepts: 1 or 2. Default: 1."), ["How many.", "1 or 2", "1"]);
        assert_eq!(cut("How many. Default: 1. Accepts: 1 or 2."), ["How many.", "1 or 2", "1"]);
        assert_eq!(cut("How many."), ["How many.", "", ""]);
    }

    #[test]
    fn fields_say_their_types_and_whether_they_are_required() {
        let text = "    /// A name.\n    pub name: String,\n    #[serde(skip)]\n    cache: u8,\n\
                    /// A list.\n///\n/// Accepts: x.\n#[serde(default)]\nlist: Vec<f64>,\n\
                    at: Option<Spanned<u64>>,\n";
        let found = fields(text.lines(), false);
        let shown: Vec<_> =
            found.iter().map(|field| (&*field.name, &*field.kind, field.required)).collect();
        assert_eq!(
            shown,
            [("name", "String", true), ("list", "Vec<f64>", false), ("at", "u64", false)]
        );
        assert_eq!(found[1].accepts.as_deref(), Some("x"));
        assert!(fields(text.lines(), true).iter().all(|field| !field.required));
    }

    #[test]
    fn variants_are_named_as_their_attribute_says() {
        let names = |name: &str| {
            let found = Type::find(name);
            found.variants().iter().map(|(name, _)| name.clone()).collect::<Vec<_>>()
        };
        assert!(names("SplitKind").contains(&"by-label".to_string()));
        assert!(names("Figure").contains(&"train_loss".to_string()));
        assert!(names("OptimizerKind").contains(&"adamw".to_string()));
    }
}
