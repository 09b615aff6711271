//! The pictures of `gradvine report` are correct: curves go through the evaluations. A browser, if
//! there is one, draws the page.

use crate::command;

use std::{
    collections::BTreeMap,
    env,
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use command::{folder, gradvine, metrics};
use quick_xml::{
    Reader,
    events::{BytesStart, Event},
};
use serde_json::{Value, json};
use tempfile::TempDir;

/// Two runs and their page.
struct Shown {
    folder: TempDir,
    runs: [PathBuf; 2],
    html: String,
}

impl Shown {
    fn new() -> Shown {
        let folder = folder();
        let runs = ["four-bits", "dense"].map(|name| folder.path().join(name));
        let network = [
            "network.preset=4g",
            "network.compute=fixed",
            "network.compute_ms=20",
            "run.evaluate_every=10",
        ];
        let rules = [
            ["rule.kind=choco", "compressor.bits=4"],
            ["rule.kind=d-psgd", "compressor.kind=identity"],
        ];
        for (run, rule) in runs.iter().zip(rules) {
            gradvine()
                .args([
                    "simulate",
                    "-q",
                    "--no-baseline",
                    "--rounds",
                    "120",
                    "--topology",
                    "ring:5",
                    "--out",
                ])
                .arg(run)
                .args(network.iter().chain(&rule).flat_map(|set| ["--set", set]))
                .assert()
                .success();
        }
        let out = folder.path().join("report.html");
        let figures = folder.path().join("figures");
        let mut report = gradvine();
        report.arg("report").args(&runs).arg("--out").arg(&out).arg("--figures").arg(figures);
        report.assert().success();
        let html = fs::read_to_string(&out).unwrap();
        Shown { folder, runs, html }
    }

    /// The SVG of a picture.
    fn picture(&self, id: &str) -> Picture {
        let file = self.folder.path().join(format!("figures/{id}.svg"));
        Picture::of(&fs::read_to_string(file).unwrap(), id)
    }

    /// The evaluations of a run: (x, y) of each round, of the mean over its nodes.
    fn evaluations(&self, run: usize, x: &str, y: &str) -> Vec<(f64, f64)> {
        let mut rounds: BTreeMap<u64, Vec<Value>> = BTreeMap::new();
        for line in metrics(&self.runs[run]) {
            rounds.entry(line["round"].as_u64().unwrap()).or_default().push(line);
        }
        let mean = |lines: &Vec<Value>, key: &str| {
            lines.iter().map(|line| line[key].as_f64().unwrap()).sum::<f64>() / lines.len() as f64
        };
        rounds.values().map(|lines| (mean(lines, x), mean(lines, y))).collect()
    }
}

#[derive(Clone, Debug)]
struct Element {
    name: String,
    attributes: BTreeMap<String, String>,
}

impl Element {
    fn is(&self, name: &str, key: &str, value: &str) -> bool {
        self.name == name && self.attributes.get(key).is_some_and(|found| found == value)
    }

    fn number(&self, key: &str) -> f64 {
        self.attributes[key].parse().unwrap()
    }

    /// The points of a path of straight lines.
    fn points(&self) -> Vec<(f64, f64)> {
        let point = |text: &str| {
            let (x, y) = text.split_once(' ').unwrap();
            (x.parse().unwrap(), y.parse().unwrap())
        };
        self.attributes["d"].split(['M', 'L']).filter(|text| !text.is_empty()).map(point).collect()
    }
}

#[derive(Clone, Debug)]
struct Picture {
    elements: Vec<Element>,
}

impl Picture {
    fn of(svg: &str, id: &str) -> Picture {
        let mut reader = Reader::from_str(svg);
        let mut elements = Vec::new();
        let element = |start: &BytesStart| Element {
            name: start.name().as_ref().to_string(),
            attributes: (start.attributes().map(Result::unwrap))
                .map(|one| (one.key.as_ref().to_string(), one.value.into_owned()))
                .collect(),
        };
        loop {
            match reader.read_event().unwrap_or_else(|error| panic!("{id}: {error}")) {
                Event::Start(start) | Event::Empty(start) => elements.push(element(&start)),
                Event::Eof => break,
                _ => {}
            }
        }
        Picture { elements }
    }

    /// Paths that are lines, in the order of the runs.
    fn curves(&self) -> Vec<&Element> {
        let drawn = |element: &&Element| {
            element.is("path", "fill", "none") && element.attributes.contains_key("clip-path")
        };
        self.elements.iter().filter(drawn).collect()
    }

    /// Left, top, right, bottom of the plot.
    fn plot(&self) -> [f64; 4] {
        let at = self.elements.iter().position(|element| element.name == "clipPath").unwrap();
        let frame = &self.elements[at + 1];
        let [x, y, wide, high] = ["x", "y", "width", "height"].map(|key| frame.number(key));
        [x, y, x + wide, y + high]
    }
}

const CURVES: [(&str, &str, &str); 10] = [
    ("loss-rounds", "round", "train_loss"),
    ("loss-bytes", "bytes_payload", "train_loss"),
    ("loss-time", "time_s", "train_loss"),
    ("test-loss-rounds", "round", "test_loss"),
    ("test-loss-bytes", "bytes_payload", "test_loss"),
    ("test-loss-time", "time_s", "test_loss"),
    ("accuracy-rounds", "round", "test_accuracy"),
    ("accuracy-bytes", "bytes_payload", "test_accuracy"),
    ("accuracy-time", "time_s", "test_accuracy"),
    ("consensus-rounds", "round", "consensus"),
];

/// Whether one scale maps every value to its pixel.
fn scales(pairs: &[(f64, f64)]) -> bool {
    let end = |least: bool| {
        let order = |a: &&(f64, f64), b: &&(f64, f64)| a.0.total_cmp(&b.0);
        *if least { pairs.iter().min_by(order) } else { pairs.iter().max_by(order) }.unwrap()
    };
    let ((v, p), (w, q)) = (end(true), end(false));
    pairs.iter().all(|(value, pixel)| (p + (value - v) / (w - v) * (q - p) - pixel).abs() < 0.2)
}

#[test]
fn curves_go_through_the_evaluations() {
    let shown = Shown::new();
    for (id, x, y) in CURVES {
        let picture = shown.picture(id);
        let ([left, top, right, bottom], curves) = (picture.plot(), picture.curves());
        assert_eq!(curves.len(), 2, "{id}");
        let (mut across, mut upwards) = (Vec::new(), Vec::new());
        for (run, curve) in curves.iter().enumerate() {
            let (values, points) = (shown.evaluations(run, x, y), curve.points());
            assert_eq!((points.len(), values.len()), (12, 12), "{id}");
            for &(px, py) in &points {
                assert!(
                    (left..=right).contains(&px) && (top..=bottom).contains(&py),
                    "{id}: {px} {py} is outside"
                );
            }
            assert!(points.windows(2).all(|pair| pair[0].0 < pair[1].0), "{id}: to the right");
            across.extend(values.iter().zip(&points).map(|(value, point)| (value.0, point.0)));
            upwards.extend(values.iter().zip(&points).map(|(value, point)| (value.1, point.1)));
        }
        assert_ne!(
            curves[0].attributes["d"], curves[1].attributes["d"],
            "{id}: two runs, two curves"
        );
        assert_ne!(
            curves[0].attributes["stroke"], curves[1].attributes["stroke"],
            "{id}: two runs, two colours"
        );
        let log = |pairs: &[(f64, f64)]| -> Vec<(f64, f64)> {
            pairs.iter().map(|(v, p)| (v.log10(), *p)).collect()
        };
        assert!(scales(&across) || scales(&log(&across)), "{id}: {across:?}");
        // The axis of accuracies is logarithmic in the error.
        let errors = |pairs: &[(f64, f64)]| -> Vec<(f64, f64)> {
            pairs.iter().map(|(v, p)| ((1.0 - v).log10(), *p)).collect()
        };
        let is_accuracy = y == "test_accuracy";
        let fits = scales(&if is_accuracy { errors(&upwards) } else { log(&upwards) });
        assert!(fits, "{id}: {upwards:?}");
        // Losses fall and accuracies rise: the picture is not upside down.
        let (first, last) = (upwards[0], upwards[11]);
        assert_eq!(first.0 < last.0, first.1 > last.1, "{id}");
        // A point drawn elsewhere fails the test.
        upwards[5].1 += 3.0;
        let moved = if is_accuracy { errors(&upwards) } else { log(&upwards) };
        assert!(!scales(&moved), "{id}: the check finds nothing");
    }
}

/// A headless browser, if there is one.
pub(crate) fn browser() -> Option<PathBuf> {
    let names = ["chromium", "chromium-browser", "google-chrome"];
    let folders: Vec<PathBuf> = env::split_paths(&env::var_os("PATH")?).collect();
    names
        .iter()
        .flat_map(|name| folders.iter().map(move |folder| folder.join(name)))
        .find(|path| path.is_file())
}

/// The address of a file for a browser.
pub(crate) fn address(file: &Path) -> String {
    format!("file://{}", file.display())
}

/// Runs the browser on a page; its standard output.
pub(crate) fn browse(
    browser: &Path,
    page: &str,
    width: u32,
    height: u32,
    more: &[impl AsRef<OsStr>],
) -> String {
    let profile = folder();
    let output = Command::new(browser)
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--no-first-run",
            "--hide-scrollbars",
        ])
        .args([
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--force-color-profile=srgb",
        ])
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .arg(format!("--window-size={width},{height}"))
        .args(more)
        .arg(page)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A page in a frame of this width, with a script that looks at it and writes an object: what it
/// writes. Windows have a least width, so the page is in a frame.
fn looked_at(browser: &Path, folder: &Path, html: &str, width: u32, script: &str) -> Value {
    let page = html.replace('&', "&amp;").replace('"', "&quot;");
    let framed = format!(
        "<!doctype html><body><iframe style=\"border:0;width:{width}px;height:900px\" \
         srcdoc=\"{page}\"></iframe><script>const frame = document.querySelector('iframe'); \
         frame.onload = () => {{ const page = frame.contentDocument; const view = \
         frame.contentWindow; {script} setTimeout(() => {{ document.body.textContent = \
         JSON.stringify(look()); }}, 500); }};</script>"
    );
    let copy = folder.join("framed.html");
    fs::write(&copy, framed).unwrap();
    let more = ["--dump-dom", "--virtual-time-budget=3000"];
    let dom = browse(browser, &address(&copy), 1400, 1000, &more);
    let begin = dom.find("{\"").unwrap_or_else(|| panic!("{dom}"));
    serde_json::from_str(&dom[begin..=dom.rfind('}').unwrap()]).unwrap()
}

/// What a look at a page finds: its width, faults, and the charts with what is painted in them.
const LOOK: &str = "const look = () => ({ \
    window: view.innerWidth, page: page.documentElement.scrollWidth, \
    alert: page.getElementById('alert').textContent, \
    shown: [...page.querySelectorAll('section')].filter((one) => one.clientHeight > 0) \
      .map((one) => one.getAttribute('aria-labelledby')), \
    charts: [...page.querySelectorAll('figure')].map((figure) => { \
      const canvas = figure.querySelector('canvas'); \
      const pixels = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height); \
      return { title: figure.querySelector('figcaption').textContent, \
        inked: pixels.data.filter((value) => value !== 0).length, \
        legend: figure.querySelector('.legend').textContent }; }), \
    hints: [...page.querySelectorAll('#first .hint, #rest .hint')] \
      .filter((hint) => hint.clientHeight > 0).length, \
    tables: [...page.querySelectorAll('table.figures')].length, \
    rows: [...page.querySelectorAll('#rows tr')].map((row) => row.textContent) });";

/// Of two runs all is compared; each is chosen by its name. Nothing is wider than the window, and
/// tables that are wider than it say that they scroll.
#[test]
#[ignore = "slow"]
fn a_browser_shows_all_runs_and_each() {
    let Some(browser) = browser() else {
        println!("skipped: there is no chromium on the path");
        return;
    };
    let shown = Shown::new();
    let choose = "const which = page.getElementById('which'); which.value = '1'; \
                  which.dispatchEvent(new view.Event('change')); ";
    for width in [1280, 390] {
        let all = looked_at(&browser, shown.folder.path(), &shown.html, width, LOOK);
        assert_eq!((&all["page"], &all["alert"]), (&all["window"], &json!("")), "{all}");
        assert_eq!(
            all["shown"],
            json!(["state-title", "runs-title", "curves-title", "differences-title"])
        );
        let charts = all["charts"].as_array().unwrap();
        let titles: Vec<&Value> = charts.iter().map(|chart| &chart["title"]).collect();
        assert_eq!(titles, ["loss", "test accuracy", "test loss", "consensus"]);
        for chart in charts {
            assert!(chart["inked"].as_u64() > Some(1000), "{chart}");
            let legend = chart["legend"].as_str().unwrap();
            assert!(legend.contains("four-bits") && legend.contains("dense"), "{legend}");
        }
        assert!(all["hints"].as_u64() >= Some(1), "the table of runs is wide: {all}");

        let script = format!("{choose}{LOOK}");
        let one = looked_at(&browser, shown.folder.path(), &shown.html, width, &script);
        assert_eq!((&one["page"], &one["alert"]), (&one["window"], &json!("")), "{one}");
        let sections = one["shown"].as_array().unwrap();
        for title in [
            "network-title",
            "run-title",
            "nodes-title",
            "quality-title",
            "traffic-title",
            "topology-title",
            "settings-title",
            "events-title",
        ] {
            assert!(sections.contains(&json!(title)), "{title}: {one}");
        }
        let charts = one["charts"].as_array().unwrap();
        let titles: Vec<&Value> = charts.iter().map(|chart| &chart["title"]).collect();
        assert_eq!(titles[4..], ["ROC of each class against the rest", "Calibration"]);
        assert!(charts.iter().all(|chart| chart["inked"].as_u64() > Some(1000)), "{one}");
        assert!(charts[1]["legend"].as_str().unwrap().contains("all nodes"));
        assert_eq!(one["rows"].as_array().unwrap().len(), 5, "a row a node: {one}");
        assert!(one["rows"][0].as_str().unwrap().contains("done"), "{one}");
    }
    // A page whose data are of another version says so, and draws nothing.
    let other = shown.html.replacen("id=\"data\">{\"version\":1", "id=\"data\">{\"version\":9", 1);
    assert_ne!(other, shown.html);
    let script = LOOK;
    let seen = looked_at(&browser, shown.folder.path(), &other, 1280, script);
    assert!(seen["alert"].as_str().unwrap().contains("version 9"), "{seen}");
    assert_eq!(seen["charts"], json!([]));
}
