//! State that must survive a restart, as named vectors and numbers.

/// Visits state: to count its memory, to hash it, to copy it, or to restore it.
pub trait Visitor {
    /// A vector that later rounds need.
    fn vector(&mut self, name: &str, values: &mut Vec<f32>);

    /// A number that later rounds need.
    fn number(&mut self, name: &str, value: &mut f64);

    /// Buffers of `numbers` numbers in all, whose content no later round needs.
    fn scratch(&mut self, numbers: usize);
}

/// A copy of state, in the order in which it was visited.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct State {
    /// Names and values of the vectors. A name may occur several times.
    pub vectors: Vec<(String, Vec<f32>)>,
    /// Names and values of the numbers.
    pub numbers: Vec<(String, f64)>,
}

impl State {
    /// Copies what `visit` passes to its visitor.
    pub fn copy(visit: impl FnOnce(&mut dyn Visitor)) -> State {
        let mut state = State::default();
        visit(&mut state);
        state
    }

    /// Writes the copy into what `visit` passes to its visitor.
    ///
    /// # Errors
    /// The first item whose name differs, or that is missing or left over.
    pub fn restore(self, visit: impl FnOnce(&mut dyn Visitor)) -> Result<(), String> {
        let mut restore = Restore {
            vectors: self.vectors.into_iter(),
            numbers: self.numbers.into_iter(),
            error: None,
        };
        visit(&mut restore);
        let left = restore.vectors.next().map(|(name, _)| name);
        let left = left.or_else(|| restore.numbers.next().map(|(name, _)| name));
        match (restore.error, left) {
            (Some(error), _) => Err(error),
            (None, Some(name)) => Err(format!("`{name}` is not part of the state here")),
            (None, None) => Ok(()),
        }
    }
}

impl Visitor for State {
    fn vector(&mut self, name: &str, values: &mut Vec<f32>) {
        self.vectors.push((name.into(), values.clone()));
    }

    fn number(&mut self, name: &str, value: &mut f64) {
        self.numbers.push((name.into(), *value));
    }

    fn scratch(&mut self, _numbers: usize) {}
}

struct Restore {
    vectors: std::vec::IntoIter<(String, Vec<f32>)>,
    numbers: std::vec::IntoIter<(String, f64)>,
    error: Option<String>,
}

impl Restore {
    fn take<T>(&mut self, name: &str, next: Option<(String, T)>) -> Option<T> {
        match next {
            Some((found, value)) if found == name => return Some(value),
            Some((found, _)) => self.error.get_or_insert(format!("`{found}` instead of `{name}`")),
            None => self.error.get_or_insert(format!("`{name}` is missing")),
        };
        None
    }
}

impl Visitor for Restore {
    fn vector(&mut self, name: &str, values: &mut Vec<f32>) {
        let next = self.vectors.next();
        if let Some(saved) = self.take(name, next) {
            *values = saved;
        }
    }

    fn number(&mut self, name: &str, value: &mut f64) {
        let next = self.numbers.next();
        if let Some(saved) = self.take(name, next) {
            *value = saved;
        }
    }

    fn scratch(&mut self, _numbers: usize) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    fn visit(visitor: &mut dyn Visitor, vectors: &mut [Vec<f32>], number: &mut f64) {
        vectors.iter_mut().for_each(|values| visitor.vector("copy", values));
        visitor.scratch(7);
        visitor.number("weight", number);
    }

    #[test]
    fn a_copy_is_restored_and_a_foreign_one_is_refused() {
        let (mut vectors, mut number) = (vec![vec![1.0, 2.0], vec![3.0]], 0.5);
        let state = State::copy(|visitor| visit(visitor, &mut vectors, &mut number));
        let (mut others, mut other) = (vec![vec![0.0; 2], vec![0.0]], 0.0);
        state.clone().restore(|visitor| visit(visitor, &mut others, &mut other)).unwrap();
        assert_eq!((others, other), (vectors, number));
        let refusal = |state: State, count: usize| {
            let (mut vectors, mut number) = (vec![Vec::new(); count], 0.0);
            state.restore(|visitor| visit(visitor, &mut vectors, &mut number)).unwrap_err()
        };
        assert_eq!(refusal(state.clone(), 3), "`copy` is missing");
        assert_eq!(refusal(state.clone(), 1), "`copy` is not part of the state here");
        let renamed = State { numbers: vec![("mass".into(), 1.0)], ..state };
        assert_eq!(refusal(renamed, 2), "`mass` instead of `weight`");
    }
}
