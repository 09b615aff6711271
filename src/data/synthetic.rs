//! Random rows: linear regression with any number of features, for studies of compressors in high
//! dimension.
//!
//! Row r of a node's block is x ~ N(0, I) with target y = x . w_i + noise e, e ~ N(0, 1). The
//! nodes' optima are w_i = w + heterogeneity u_i; w and all u_i are drawn from N(0, I / d), so
//! their length is about 1. So heterogeneity is the distance, in units of |w|, between the optimum
//! of a node's data and that of all data. The blocks are those of a contiguous split.

use ndarray::Array2;

use super::{
    DataError,
    dataset::{Dataset, Target},
};
use crate::{
    config::ConfigError,
    rng::{Purpose, Stream},
};

/// The name of this source.
pub const SYNTHETIC: &str = "synthetic";

/// The maximum count of numbers: 4 GiB of them.
const MOST: u64 = 1 << 30;

/// The parameters of the rows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Synthetic {
    /// Rows of all nodes together.
    pub(crate) rows: u64,
    /// d.
    pub(crate) features: u64,
    /// Deviation of the targets' noise.
    pub(crate) noise: f64,
    /// The distance between the nodes' optima.
    pub(crate) heterogeneity: f64,
}

impl Synthetic {
    /// Draws all rows, in one block per node (sizes differ by at most 1, larger first).
    ///
    /// # Errors
    /// If a value is out of range.
    pub(crate) fn draw(&self, nodes: usize, seed: u64) -> Result<Dataset, DataError> {
        self.check()?;
        let (rows, width) = (self.rows as usize, self.features as usize);
        let stream = Stream::new(seed, Purpose::Data);
        let scale = 1.0 / (width as f64).sqrt();
        let vector = |word: u64| {
            let mut normal = stream.with(word).sequence();
            (0..width).map(|_| scale * normal.normal()).collect::<Vec<f64>>()
        };
        let common = vector(0);
        let mut features = Vec::with_capacity(rows * width);
        let mut values = Vec::with_capacity(rows);
        let nodes = nodes.clamp(1, rows);
        for node in 0..nodes {
            let own: Vec<f64> = (common.iter().zip(vector(1 + 2 * node as u64)))
                .map(|(w, u)| w + self.heterogeneity * u)
                .collect();
            let mut normal = stream.with(2 + 2 * node as u64).sequence();
            let mut noise = stream.with(2 + 2 * node as u64).with(0).sequence();
            for _ in 0..rows / nodes + usize::from(node < rows % nodes) {
                let mut y = 0.0;
                for w in &own {
                    let x = normal.normal() as f32;
                    y += f64::from(x) * w;
                    features.push(x);
                }
                values.push((y + self.noise * noise.normal()) as f32);
            }
        }
        let shaped = |width: usize, numbers: Vec<f32>| {
            Array2::from_shape_vec((rows, width), numbers)
                .expect("as many numbers were drawn as the shape has")
        };
        Dataset::new(SYNTHETIC, shaped(width, features), Target::Values(shaped(1, values)))
    }

    fn check(&self) -> Result<(), ConfigError> {
        for (key, value) in [("data.rows", self.rows), ("data.features", self.features)] {
            if value == 0 || value > MOST {
                let problem = format!("expected a whole number from 1 to {MOST}");
                return Err(ConfigError::new(key, value, problem));
            }
        }
        if self.rows * self.features > MOST {
            let problem = format!(
                "{} rows of {} features: at most {MOST} numbers are drawn",
                self.rows, self.features
            );
            return Err(ConfigError::new("data.rows", self.rows, problem));
        }
        for (key, value) in [("data.noise", self.noise), ("data.heterogeneity", self.heterogeneity)]
        {
            if !(0.0..=1e6).contains(&value) {
                return Err(ConfigError::new(key, value, "expected a number from 0 to 1000000"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: Synthetic = Synthetic { rows: 4001, features: 5, noise: 0.0, heterogeneity: 0.0 };

    fn target(data: &Dataset) -> &Array2<f32> {
        match &data.target {
            Target::Values(values) => values,
            Target::Classes { .. } => panic!("numbers are drawn"),
        }
    }

    /// w of noiseless rows, from as many rows as there are features, by nalgebra's LU.
    fn solved(data: &Dataset, from: usize) -> nalgebra::DVector<f64> {
        let d = data.inputs();
        let a = nalgebra::DMatrix::from_fn(d, d, |i, j| f64::from(data.features[[from + i, j]]));
        let b = nalgebra::DVector::from_fn(d, |i, _| f64::from(target(data)[[from + i, 0]]));
        a.lu().solve(&b).unwrap()
    }

    #[test]
    fn one_optimum_without_heterogeneity_and_one_a_node_with_it() {
        let data = SMALL.draw(4, 1).unwrap();
        assert_eq!((data.rows(), data.inputs(), data.outputs()), (4001, 5, 1));
        let w = solved(&data, 0);
        assert!((w.clone() - solved(&data, 3990)).norm() < 1e-4, "all blocks have the same");
        let apart = Synthetic { heterogeneity: 2.0, ..SMALL }.draw(4, 1).unwrap();
        // Blocks of 1001, 1000, 1000, 1000 rows.
        let (first, still, second) = (solved(&apart, 0), solved(&apart, 990), solved(&apart, 1001));
        assert!((first.clone() - still).norm() < 1e-4 && (first.clone() - second).norm() > 0.5);
        assert!(((first - w).norm() - 2.0).abs() < 1.5, "u has a length of about 1");
    }

    #[test]
    fn features_are_normal_and_seeded() {
        let data = SMALL.draw(4, 1).unwrap();
        let x = data.features.as_slice().unwrap();
        let count = x.len() as f64;
        let mean = x.iter().map(|x| f64::from(*x)).sum::<f64>() / count;
        let square = x.iter().map(|x| f64::from(*x) * f64::from(*x)).sum::<f64>() / count;
        // Deviations of the two: 0.007 and 0.01.
        assert!(mean.abs() < 0.035 && (square - 1.0).abs() < 0.05, "{mean} {square}");
        assert_eq!(SMALL.draw(4, 1).unwrap(), data);
        assert_ne!(SMALL.draw(4, 2).unwrap(), data);
        let noisy = Synthetic { noise: 3.0, ..SMALL }.draw(4, 1).unwrap();
        let noise = target(&noisy) - target(&data);
        let variance = noise.iter().map(|e| f64::from(*e) * f64::from(*e)).sum::<f64>() / 4001.0;
        assert_eq!(noisy.features, data.features);
        assert!((variance - 9.0).abs() < 1.0, "{variance}");
    }

    #[test]
    fn values_out_of_range_are_named() {
        for (wrong, key) in [
            (Synthetic { rows: 0, ..SMALL }, "data.rows = 0: "),
            (Synthetic { features: MOST, ..SMALL }, "data.rows = 4001: "),
            (Synthetic { features: 0, ..SMALL }, "data.features = 0: "),
            (Synthetic { noise: f64::NAN, ..SMALL }, "data.noise = NaN: "),
            (Synthetic { heterogeneity: -1.0, ..SMALL }, "data.heterogeneity = -1: "),
        ] {
            let error = wrong.draw(4, 1).unwrap_err().to_string();
            assert!(error.starts_with(key), "{error}");
        }
    }
}
