//! Sites whose files have their columns in other orders, text, dates and missing values.

use std::fs;

use gradvine::data::EMBEDDED;

use crate::command::{Deployment, NAMES, Reach, folder, gradvine, json, refused, within};

/// The cells of 24 rows of a site: age, sex, smoker, admitted, ward, label.
fn cells(site: usize) -> Vec<[String; 6]> {
    let row = |i: usize| {
        let age = 30 + (i * 7 + site * 5) % 40;
        let age = if i % 5 == site { "NA".into() } else { age.to_string() };
        let sex = ["f", "m"][(i + site) % 2];
        let smoker = ["True", "False", "yes"][i % 3];
        let admitted = format!("2024-0{}-1{}", 1 + i % 9, site);
        let ward = ["north", "south", "attic", ""][(i * i + site) % 4];
        let label = if (i * 7 + site * 5) % 40 > 20 { "sick" } else { "healthy" };
        [age, sex.into(), smoker.into(), admitted, ward.into(), label.into()]
    };
    (0..24).map(row).collect()
}

const NAMED: [&str; 6] = ["age", "sex", "smoker", "admitted", "ward", "diagnosis"];

const SCHEMA: &str = r#"
target = "diagnosis"
classes = ["healthy", "sick"]
standardize = true
test_share = 0.0
schema = [
    { name = "age", kind = "number", missing = "mean" },
    { name = "sex", kind = "category", values = ["f", "m"] },
    { name = "smoker", kind = "boolean" },
    { name = "admitted", kind = "date" },
    { name = "ward", kind = "category", values = ["north", "south"], other = true,
      missing = "category" },
]
"#;

/// The columns of a site's file in this order, with one more.
fn file(site: usize, order: [usize; 6]) -> String {
    let mut text = order.map(|at| NAMED[at]).join(",") + ",note\n";
    for cells in cells(site) {
        text += &(order.map(|at| cells[at].as_str()).join(",") + ",\"a, b\"\n");
    }
    text
}

/// The features of all sites, computed plainly: as a file of numbers each.
fn encoded() -> [String; 3] {
    let all = [0, 1, 2].map(cells);
    let (mut sum, mut count) = (0.0f64, 0);
    for site in &all {
        let ages = site.iter().filter_map(|cells| cells[0].parse::<f32>().ok());
        // Each site sends its sum; these are added in the order of the nodes.
        let own: f64 = ages.clone().map(f64::from).sum();
        (sum, count) = (sum + own, count + ages.count());
    }
    let mean = (sum / f64::from(u32::try_from(count).unwrap())) as f32;
    // Days from 1970-01-01 to the first of January 2024, and to the first of each month of 2024.
    const MONTHS: [u32; 9] = [0, 31, 60, 91, 121, 152, 182, 213, 244];
    let one = |cells: &[String; 6]| {
        let is = |at: usize, text: &str| u32::from(cells[at] == text).to_string();
        let month: usize = cells[3][5..7].parse().unwrap();
        let day: u32 = cells[3][8..10].parse().unwrap();
        let known = ["north", "south", ""].contains(&cells[4].as_str());
        [
            cells[0].parse::<f32>().unwrap_or(mean).to_string(),
            is(1, "f"),
            is(1, "m"),
            u32::from(cells[2] != "False").to_string(),
            (19_723 + MONTHS[month - 1] + day - 1).to_string(),
            is(4, "north"),
            is(4, "south"),
            u32::from(!known).to_string(),
            is(4, ""),
            u32::from(cells[5] == "sick").to_string(),
        ]
        .join(",")
    };
    all.map(|site| {
        let names = (0..9).map(|at| format!("f{at}")).collect::<Vec<_>>().join(",");
        names + ",label\n" + &site.iter().map(|cells| one(cells) + "\n").collect::<String>()
    })
}

fn experiment(data: &str) -> String {
    format!(
        "[run]\nrounds = 12\nconnect_s = 30\n[data]\n{data}\n[model]\nkind = \"softmax\"\n\
         inputs = 9\noutputs = 2\n[rule]\nkind = \"d-psgd\"\n[optimizer]\nstep = 0.2\nbatch = 4\n"
    )
}

fn digest(files: [String; 3], data: &str) -> (Deployment, serde_json::Value) {
    let deployment = Deployment::new(Reach::Tcp, "rounds = 12");
    deployment.write("experiment.toml", &experiment(data));
    for (name, text) in NAMES.iter().zip(files) {
        deployment.write(&format!("{name}.csv"), &text);
    }
    let mut nodes = NAMES.map(|name| deployment.start(name));
    for node in &mut nodes {
        assert_eq!(node.end().0, Some(0), "{}", node.errors());
    }
    let digest = json(&deployment.run("tokyo").join("summary.json"))["digest"].clone();
    assert!(digest.is_string());
    (deployment, digest)
}

#[test]
#[ignore = "slow"]
fn sites_with_other_orders_of_columns_train_what_plain_numbers_train() {
    let files =
        [file(0, [0, 1, 2, 3, 4, 5]), file(1, [5, 4, 3, 2, 1, 0]), file(2, [2, 5, 0, 4, 1, 3])];
    let (deployment, by_schema) = digest(files, SCHEMA);
    let plain = "standardize = true\ntest_share = 0.0";
    let (_, by_numbers) = digest(encoded(), plain);
    assert_eq!(by_schema, by_numbers, "the features are those of the schema");

    // The model reads files by the same schema, whatever their order.
    let model = deployment.run("oslo");
    let predict = |site: usize, order: [usize; 6]| {
        deployment.write("rows.csv", &file(site, order));
        let assert =
            gradvine().arg("predict").arg(&model).arg(deployment.file("rows.csv")).assert();
        String::from_utf8(assert.success().get_output().stdout.clone()).unwrap()
    };
    let straight = predict(1, [0, 1, 2, 3, 4, 5]);
    assert!(straight.starts_with("row,prediction,p(healthy),p(sick)\n0,"), "{straight}");
    assert_eq!(straight, predict(1, [3, 2, 5, 1, 0, 4]));
    // An unknown value is refused with its place.
    let wrong = file(1, [0, 1, 2, 3, 4, 5]).replacen(",m,", ",x,", 1);
    deployment.write("rows.csv", &wrong);
    let problem = refused(gradvine().arg("predict").arg(&model).arg(deployment.file("rows.csv")));
    assert!(problem.contains("column 1 (sex) = \"x\": not a value of this category"), "{problem}");
    assert!(problem.contains("f, m are accepted"), "{problem}");
}

#[test]
#[ignore = "slow"]
fn nodes_compare_their_schemas_before_the_run() {
    let deployment = Deployment::new(Reach::Tcp, "rounds = 12");
    let text = experiment(SCHEMA).replace("connect_s = 30", "connect_s = 5");
    deployment.write("experiment.toml", &text);
    deployment.give("oslo", &text.replace("[\"f\", \"m\"]", "[\"m\", \"f\"]"));
    for (site, name) in NAMES.iter().enumerate() {
        deployment.write(&format!("{name}.csv"), &file(site, [0, 1, 2, 3, 4, 5]));
    }
    let mut nodes = NAMES.map(|name| deployment.start(name));
    let codes: Vec<_> = nodes.iter_mut().map(|node| node.end().0).collect();
    let errors = nodes[2].errors();
    assert_eq!(codes[2], Some(2), "{errors}");
    assert!(errors.contains("data.schema[1]"), "{errors}");
    assert!(errors.contains("values = [\"m\", \"f\"]"), "{errors}");
}

#[test]
fn a_file_is_described_with_a_draft_that_runs() {
    let folder = tempfile::tempdir().unwrap();
    let mut text = String::from("Unnamed: 0,patient,");
    let all = file(0, [0, 1, 2, 3, 4, 5]).replace(",yes,", ",True,");
    for (at, line) in all.lines().enumerate() {
        text += &match at {
            0 => format!("{line}\n"),
            at => format!("{},P{at},{line}\n", at - 1),
        };
    }
    fs::write(folder.path().join("site.csv"), text).unwrap();
    let describe = |arguments: &[&str]| {
        let mut command = gradvine();
        command.current_dir(folder.path()).args(["data", "describe", "site.csv"]);
        let assert = command.args(["--target", "diagnosis"]).args(arguments).assert().success();
        String::from_utf8(assert.get_output().stdout.clone()).unwrap()
    };
    let shown = describe(&[]);
    for words in ["24 rows", "it counts the rows", "text with many different values", "healthy ("] {
        assert!(shown.contains(words), "{words}: {shown}");
    }
    let object: serde_json::Value = serde_json::from_str(&describe(&["--json"])).unwrap();
    let kinds = |name: &str| {
        let columns = object["columns"].as_array().unwrap();
        columns.iter().find(|column| column["name"] == name).unwrap()["kind"].clone()
    };
    let found = ["Unnamed: 0", "patient", "age", "sex", "smoker", "admitted", "ward", "note"];
    let expected =
        ["ignore", "ignore", "number", "category", "boolean", "date", "category", "ignore"];
    assert_eq!(found.map(kinds), expected.map(serde_json::Value::from));

    let draft = describe(&["--toml"]);
    fs::write(folder.path().join("experiment.toml"), &draft).unwrap();
    let settings = ["--set", "run.rounds=5", "--set", "topology.file=ring:3", "--out", "run"];
    let simulate = |file: &str, out: &str| {
        gradvine()
            .current_dir(folder.path())
            .args(["simulate", file, "--quiet"])
            .args(&settings[..4])
            .args(["--out", out])
            .assert()
            .success();
        json(&folder.path().join(out).join("summary.json"))["digest"].clone()
    };
    let listed = simulate("experiment.toml", "a");
    // Without the values of categories they are those of the file; the run writes them down.
    let open = draft.replace("values = [\"f\", \"m\"], ", "");
    assert_ne!(open, draft);
    fs::write(folder.path().join("open.toml"), open).unwrap();
    assert_eq!(simulate("open.toml", "b"), listed);
    let written = fs::read_to_string(folder.path().join("b/experiment.toml")).unwrap();
    assert!(written.contains("values = [\"f\", \"m\"]"), "{written}");
}

#[test]
fn a_draft_of_a_shipped_set_runs() {
    let folder = folder();
    for set in &EMBEDDED {
        let done = within(folder.path(), &["data", "describe", set.name, "--toml"]).success();
        fs::write(folder.path().join("draft.toml"), &done.get_output().stdout).unwrap();
        let run = ["simulate", "-q", "draft.toml", "--set", "run.rounds=2", "--out", set.name];
        within(folder.path(), &run).success();
    }
}

#[test]
fn the_page_about_data_shows_what_the_command_prints() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("patients.csv"), include_str!("patients.csv")).unwrap();
    let arguments = ["data", "describe", "patients.csv", "--target", "diagnosis"];
    let assert = gradvine().current_dir(folder.path()).args(arguments).assert().success();
    let printed = String::from_utf8(assert.get_output().stdout.clone()).unwrap();
    let page = include_str!("../../docs/data.md");
    assert!(page.contains(&format!("```text\n{printed}```\n")), "docs/data.md is stale: {printed}");
}

#[test]
fn a_run_goes_on_with_a_model_of_the_same_columns_and_classes_only() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    write("site.csv", &file(0, [0, 1, 2, 3, 4, 5]));
    write("later.csv", &file(1, [0, 1, 2, 3, 4, 5]));
    let text = |source: &str| {
        experiment(&format!("source = \"{source}\"\n{SCHEMA}")) + "[topology]\nfile = \"ring:3\"\n"
    };
    write("first.toml", &text("site.csv"));
    let simulate = |experiment: &str, out: &str, more: &[&str]| {
        let mut command = gradvine();
        command.current_dir(folder.path()).args(["simulate", experiment, "--quiet", "--out", out]);
        command.args(more).assert()
    };
    simulate("first.toml", "first", &[]).success();
    let init = ["--init", "first/model-mean.safetensors"];
    write("second.toml", &text("later.csv"));
    simulate("second.toml", "second", &init).success();
    // What missing values become, and the scale, are those of the first run.
    let later = fs::read_to_string(folder.path().join("second/experiment.toml")).unwrap();
    let fill = |run: &str| {
        let bytes = fs::read(folder.path().join(run).join("model-mean.safetensors")).unwrap();
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let after = text.split_once("gradvine.fills").map(|(_, after)| after.to_string());
        after.map(|text| text.split(['[', ']']).nth(1).unwrap().to_string())
    };
    let fill = fill("first").expect("the first run has formed a mean");
    assert!(later.contains(&format!("missing = {fill}")), "{fill}: {later}");
    assert!(later.contains("[data.scale]"), "{later}");

    let refusals = [
        (
            ["[\"healthy\", \"sick\"]", "[\"sick\", \"healthy\"]"],
            "class 0 of this model is `healthy`",
        ),
        (["[\"f\", \"m\"]", "[\"m\", \"f\"]"], "feature 1 of this model is `sex=f`"),
    ];
    for ([from, to], problem) in refusals {
        write("other.toml", &text("later.csv").replace(from, to));
        let assert = simulate("other.toml", "other", &init).failure().code(2);
        let errors = String::from_utf8(assert.get_output().stderr.clone()).unwrap();
        assert!(errors.contains(problem), "{errors}");
    }
}
