//! The kinds of models, one a file; `affine` is their common layer.

pub(crate) mod affine;
pub(crate) mod least_squares;
pub(crate) mod linear;
pub(crate) mod mlp;
pub(crate) mod softmax;
