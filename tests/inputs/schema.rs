//! Tables with a schema: text, dates and missing values become features.

use gradvine::data::{
    Column, ColumnKind, Dataset, Gaps, Missing, Options, Preprocessing, Schema, parse,
};
use ndarray::array;

fn column(name: &str, kind: ColumnKind, missing: Missing) -> Column {
    Column { name: name.into(), kind, values: None, other: false, missing, origin: None }
}

fn category(name: &str, values: &[&str], other: bool, missing: Missing) -> Column {
    let values = Some(values.iter().map(ToString::to_string).collect());
    Column { values, other, ..column(name, ColumnKind::Category, missing) }
}

fn options(columns: Vec<Column>) -> Options {
    Options { schema: Some(Schema { columns }), target: Some("y".into()), ..Options::default() }
}

fn read(text: &str, options: &Options) -> Result<Dataset, String> {
    parse("t.csv", text.as_bytes(), None, options).map_err(|error| error.to_string())
}

fn all() -> Options {
    options(vec![
        column("a", ColumnKind::Number, Missing::Mean),
        category("c", &["x", "y"], true, Missing::Category),
        column("id", ColumnKind::Ignore, Missing::Refuse),
        column("b", ColumnKind::Boolean, Missing::Value(0.5)),
        column("m", ColumnKind::Number, Missing::Median),
    ])
}

#[test]
fn cells_become_features_by_name() {
    let rows = [
        "y,m,id,c,b,a\n0,7,first,x,yes,1.5\n1,,second,z,NA,\n0,9,third,,False,2.5\n",
        // Another order, more columns, semicolons, quotes.
        "a;c;\"b\";more;m;y\n1.5;x;yes;1;7;0\n;z;?;2;null;1\n2.5;NA;f;3;9;0\n",
    ];
    for text in rows {
        let data = read(text, &all()).unwrap();
        let expected = array![
            [1.5, 1.0, 0.0, 0.0, 0.0, 1.0, 7.0],
            [0.0, 0.0, 0.0, 1.0, 0.0, 0.5, 0.0],
            [2.5, 0.0, 0.0, 0.0, 1.0, 0.0, 9.0],
        ];
        assert_eq!(data.features, expected, "{text}");
        assert_eq!(data.labels(), Some(&[0, 1, 0][..]));
        let gaps = |feature| Gaps { feature, rows: vec![1] };
        assert_eq!(data.gaps, [gaps(0), gaps(6)]);
        let names = ["a", "c=x", "c=y", "c (other)", "c (missing)", "b", "m"];
        assert_eq!(data.columns.as_ref().unwrap().features, names);

        let picked = data.select(&[1, 2, 1]);
        assert_eq!(picked.gaps[0], Gaps { feature: 0, rows: vec![0, 2] });
        let mut filled = picked;
        let fills = Preprocessing { fills: vec![2.0, 8.0], ..Preprocessing::default() };
        fills.apply(&mut filled).unwrap();
        assert_eq!(filled.features.column(0).to_vec(), [2.0, 2.5, 2.0]);
        assert_eq!(filled.features.column(6).to_vec(), [8.0, 9.0, 8.0]);
        assert!(fills.apply(&mut filled).is_err(), "nothing is missing any more");
    }
}

#[test]
fn cells_that_the_schema_does_not_accept_are_named() {
    let number = || column("a", ColumnKind::Number, Missing::Refuse);
    let date = || column("a", ColumnKind::Date, Missing::Refuse);
    let closed = || category("a", &["x", "y"], false, Missing::Refuse);
    for (column, cell, problem) in [
        (number(), "", "line 3, column 0 (a) = \"\": a value is missing: the schema accepts"),
        (number(), "tall", "line 3, column 0 (a) = \"tall\": a number is needed"),
        (number(), "1e99", "a finite number within f32"),
        (date(), "17.5.2024", "a date is needed: such as 2024-05-17"),
        (closed(), "z", "not a value of this category: x, y are accepted"),
        (closed(), "NA", "missing = \"category\""),
    ] {
        let first = if column.kind == ColumnKind::Date { "2024-01-01" } else { "1" };
        let first = if column.kind == ColumnKind::Category { "x" } else { first };
        let error = read(&format!("a,y\n{first},0\n{cell},1\n"), &options(vec![column]));
        let error = error.unwrap_err();
        assert!(error.contains(problem), "{error}");
    }
    let error = read("b,y\n1,0\n", &options(vec![number()])).unwrap_err();
    assert!(error.contains("data.schema = \"a\": no such column: the file has b, y"), "{error}");
    let error = read("1,0\n2,1\n", &options(vec![number()])).unwrap_err();
    assert!(error.contains("the first line does not name the columns"), "{error}");
    let untargeted = Options { target: None, ..options(vec![number()]) };
    let error = read("a,y\n1,0\n", &untargeted).unwrap_err();
    assert!(error.contains("data.schema names the features, and this key the target"), "{error}");
    let unlisted = column("a", ColumnKind::Category, Missing::Refuse);
    let error = read("a,y\nx,0\n", &options(vec![unlisted])).unwrap_err();
    assert!(error.contains("the values of the category are missing"), "{error}");
}

#[test]
fn a_schema_is_checked() {
    let a = |kind, missing| column("a", kind, missing);
    let number = ColumnKind::Number;
    let twice = vec![a(number, Missing::Refuse), a(ColumnKind::Date, Missing::Refuse)];
    let valued = Column { values: Some(vec!["x".into()]), ..a(number, Missing::Refuse) };
    let infinite = a(number, Missing::Value(1e300));
    for (columns, problem) in [
        (vec![], "no column becomes a feature"),
        (vec![a(ColumnKind::Ignore, Missing::Refuse)], "no column becomes a feature"),
        (twice, "named twice"),
        (vec![valued], "only a category has them"),
        (vec![a(number, Missing::Category)], "\"refuse\", \"mean\", \"median\" or a finite"),
        (vec![infinite], "\"refuse\", \"mean\", \"median\" or a finite"),
        (vec![category("a", &["x", "x"], false, Missing::Refuse)], "listed twice"),
        (vec![category("a", &[], false, Missing::Refuse)], "from 1 to 4096 values"),
        (vec![category("a", &[" x"], false, Missing::Refuse)], "without blanks"),
        (vec![category("a", &["x"], false, Missing::Mean)], "expected \"refuse\", \"category\""),
        (vec![category("a", &["x"], false, Missing::Other)], "expected \"refuse\", \"category\""),
        (
            vec![
                category("a", &["x"], false, Missing::Refuse),
                column("a=x", number, Missing::Refuse),
            ],
            "two columns have a feature of this name",
        ),
    ] {
        let error = Schema { columns }.check().unwrap_err().to_string();
        assert!(error.starts_with("data.schema") && error.contains(problem), "{error}");
    }
    all().schema.unwrap().check().unwrap();
}
