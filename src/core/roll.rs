//! Entries of nodes, in the order of their ids.
//!
//! A roll lies in pages, and clones of it share a page until one of them changes it. A daemon has
//! one of each, so nothing is ever copied there; ten thousand simulated nodes that know the same
//! ten thousand keep what they know once, and each its own differences.
//!
//! Always true: no page is empty or too long; ids only grow, within pages and from page to page.

use std::sync::Arc;

use super::id::NodeId;

/// Entries of one page; a page that has more is cut in two.
const PAGE_MAX: usize = 32;

/// What can lie in a roll.
pub trait Filed: Clone {
    /// Whose entry it is.
    fn node(&self) -> NodeId;
}

/// Entries by id.
#[derive(Clone, Debug)]
pub struct Roll<E> {
    pages: Vec<Page<E>>,
    len: usize,
}

/// A page, and the head of its last id: most searches need not look into it.
#[derive(Clone, Debug)]
struct Page<E> {
    last: u64,
    entries: Arc<Vec<E>>,
}

impl<E: Filed> Page<E> {
    fn new(entries: Vec<E>) -> Self {
        let last = entries.last().map_or(0, |entry| head(entry.node()));
        Self { last, entries: Arc::new(entries) }
    }

    fn find(&self, node: NodeId) -> Result<usize, usize> {
        self.entries.binary_search_by_key(&node, Filed::node)
    }

    /// Whether all of it comes before a node.
    fn is_before(&self, node: NodeId) -> bool {
        let head = head(node);
        self.last < head
            || self.last == head && self.entries.last().is_some_and(|last| last.node() < node)
    }

    fn change<T>(&mut self, change: impl FnOnce(&mut Vec<E>) -> T) -> T {
        let entries = Arc::make_mut(&mut self.entries);
        let result = change(entries);
        self.last = entries.last().map_or(0, |entry| head(entry.node()));
        result
    }
}

/// The first eight bytes of an id.
fn head(node: NodeId) -> u64 {
    node.0[..8].iter().fold(0, |head, byte| head << 8 | u64::from(*byte))
}

impl<E> Default for Roll<E> {
    fn default() -> Self {
        Self { pages: Vec::new(), len: 0 }
    }
}

impl<E: Filed> Roll<E> {
    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The entry of a node.
    pub fn get(&self, node: NodeId) -> Option<&E> {
        let page = self.pages.get(self.page_of(node))?;
        page.entries.get(page.find(node).ok()?)
    }

    /// The same, to be changed: its page is this roll's own from now on. The id must stay.
    pub fn get_mut(&mut self, node: NodeId) -> Option<&mut E> {
        let page = self.page_of(node);
        let page = self.pages.get_mut(page)?;
        let at = page.find(node).ok()?;
        Arc::make_mut(&mut page.entries).get_mut(at)
    }

    /// Files an entry; what lay there before.
    pub fn insert(&mut self, entry: E) -> Option<E> {
        let node = entry.node();
        let index = self.page_of(node).min(self.pages.len().saturating_sub(1));
        let Some(page) = self.pages.get_mut(index) else {
            self.pages.push(Page::new(vec![entry]));
            self.len = 1;
            return None;
        };
        let at = match page.find(node) {
            Ok(at) => {
                return page.change(|entries| Some(std::mem::replace(&mut entries[at], entry)));
            }
            Err(at) => at,
        };
        let rest = page.change(|entries| {
            entries.insert(at, entry);
            (entries.len() > PAGE_MAX).then(|| entries.split_off(entries.len() / 2))
        });
        self.len += 1;
        if let Some(rest) = rest {
            self.pages.insert(index + 1, Page::new(rest));
        }
        None
    }

    /// Takes an entry out.
    pub fn remove(&mut self, node: NodeId) -> Option<E> {
        let index = self.page_of(node);
        let page = self.pages.get_mut(index)?;
        let at = page.find(node).ok()?;
        let entry = page.change(|entries| entries.remove(at));
        if page.entries.is_empty() {
            self.pages.remove(index);
        }
        self.len -= 1;
        Some(entry)
    }

    /// All entries.
    pub fn iter(&self) -> impl Iterator<Item = &E> {
        self.pages.iter().flat_map(|page| page.entries.iter())
    }

    /// The entries after a node, or all.
    pub fn after(&self, node: Option<NodeId>) -> impl Iterator<Item = &E> {
        let first = node.map_or(0, |node| self.page_of(node));
        let later = self.pages.get(first..).unwrap_or_default();
        let entries = later.iter().flat_map(|page| page.entries.iter());
        entries.skip_while(move |entry| node.is_some_and(|node| entry.node() <= node))
    }

    /// The page in which a node's entry is, if anywhere.
    fn page_of(&self, node: NodeId) -> usize {
        self.pages.partition_point(|page| page.is_before(node))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug, PartialEq)]
    struct Line(u16, u8);

    impl Filed for Line {
        fn node(&self) -> NodeId {
            id(self.0)
        }
    }

    fn id(number: u16) -> NodeId {
        let mut bytes = [0; 32];
        // Some of them share their heads.
        bytes[7..9].copy_from_slice(&number.to_be_bytes());
        NodeId(bytes)
    }

    #[test]
    fn a_clone_shares_all_pages_but_the_one_that_changed() {
        let mut one = Roll::default();
        (0..1_000).for_each(|number| _ = one.insert(Line(number, 0)));
        let mut two = one.clone();
        two.get_mut(id(500)).unwrap().1 = 1;
        let apart = one
            .pages
            .iter()
            .zip(&two.pages)
            .filter(|(a, b)| !Arc::ptr_eq(&a.entries, &b.entries))
            .count();
        assert_eq!(
            (apart, one.get(id(500)), two.get(id(500)).unwrap().1),
            (1, Some(&Line(500, 0)), 1)
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn it_is_an_ordered_map(steps in proptest::collection::vec((0u16..200, 0u8..4), 0..600)) {
            let (mut roll, mut map) = (Roll::default(), BTreeMap::new());
            for (number, what) in steps {
                if what == 0 {
                    prop_assert_eq!(roll.remove(id(number)), map.remove(&id(number)));
                } else {
                    let line = Line(number, what);
                    prop_assert_eq!(roll.insert(line.clone()), map.insert(id(number), line));
                }
                prop_assert_eq!(roll.get(id(number)), map.get(&id(number)));
                prop_assert!(roll.pages.iter().all(|page| !page.entries.is_empty()));
            }
            prop_assert_eq!(roll.len(), map.len());
            prop_assert!(roll.iter().eq(map.values()));
            for start in (0..210).step_by(7) {
                let later = map.iter().filter(|(node, _)| **node > id(start)).map(|(_, line)| line);
                prop_assert!(roll.after(Some(id(start))).eq(later));
            }
        }
    }
}
