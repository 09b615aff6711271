//! The sets that are compiled into the program. Origin and licence (CC BY 4.0): `data/README.md`.

use crate::registry::{Named, Registry};

/// A dataset that is part of a program.
#[derive(Clone, Copy, Debug)]
pub struct Embedded {
    /// Its name, a value of `data.source`.
    pub name: &'static str,
    /// A description in one line.
    pub summary: &'static str,
    /// Authors and source of the data.
    pub reference: &'static str,
    /// The contents of a file in any format of `data.source`, compressed or not.
    pub bytes: &'static [u8],
}

/// The embedded sets that a source may name.
#[derive(Clone, Copy, Debug)]
pub struct Datasets(pub &'static Registry<Embedded>);

impl Default for Datasets {
    fn default() -> Datasets {
        Datasets(&EMBEDDED)
    }
}

/// Two are equal if they are the same registry.
impl PartialEq for Datasets {
    fn eq(&self, other: &Datasets) -> bool {
        std::ptr::eq(self.0, other.0)
    }
}

/// Every dataset that is part of the program.
pub static EMBEDDED: Registry<Embedded> = Registry::new(
    "dataset",
    &[
        Embedded {
            name: "digits",
            summary: "1,797 handwritten digits of 8 x 8 pixels, 10 classes",
            reference: "Alpaydin and Kaynak, Optical Recognition of Handwritten Digits, UCI \
                        Machine Learning Repository, CC BY 4.0",
            bytes: include_bytes!("../../data/digits.csv.gz"),
        },
        Embedded {
            name: "breast-cancer",
            summary: "569 breast masses, 30 measurements each, malignant or benign",
            reference: "Wolberg, Mangasarian, Street and Street, Breast Cancer Wisconsin \
                    (Diagnostic), UCI Machine Learning Repository, CC BY 4.0",
            bytes: include_bytes!("../../data/breast_cancer.csv.gz"),
        },
    ],
);

impl Named for Embedded {
    fn name(&self) -> &str {
        self.name
    }

    fn problem(&self) -> Option<String> {
        let taken = self.name == super::synthetic::SYNTHETIC;
        taken.then(|| "files use this name for drawn data: expected another one".into())
    }
}
