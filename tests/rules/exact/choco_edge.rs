use super::{Case, choco};

/// Where nothing is lost and C has no dice all s_ij of a node are equal.
#[test]
fn choco_on_edges() {
    Case::of("kind = 'choco-edge'\ngamma = 0.3").check(choco::icml);
}
