//! Writes a file in the format of bbolt (version 2), which etcd's snapshots have: rows in the order
//! of their keys, each page once, from the front to the back.
//!
//! A file is pages of 4 KiB. Pages 0 and 1 have the same description of the file, page 2 an empty
//! list of free pages; the rest are trees, one for each bucket, and one of the buckets. All numbers
//! are in the processor's order in bbolt; here they are little-endian, as on every processor that
//! etcd runs on. The first pages are written at last, since they name the root.

use std::io::{self, Seek, SeekFrom, Write};

const PAGE_BYTES: usize = 4096;
const HEADER_BYTES: usize = 16;
/// Bytes that describe a row, or a branch, in its page.
const ELEMENT_BYTES: usize = 16;
/// The pages before the first tree.
const FIRST_PAGES: u64 = 3;
const FREE_LIST_PAGE: u64 = 2;

const BRANCH: u16 = 0x01;
const LEAF: u16 = 0x02;
const META: u16 = 0x04;
const FREE_LIST: u16 = 0x10;
/// Marks a row that is a bucket.
const BUCKET: u32 = 0x01;

const MAGIC: u32 = 0xED0C_DAED;
const VERSION: u32 = 2;

/// A page of a tree, as the level above names it.
struct Child {
    first_key: Vec<u8>,
    page: u64,
}

/// A file in the making.
pub(crate) struct BoltFile<W> {
    out: W,
    next_page: u64,
    /// Names and roots of the finished buckets, in order.
    buckets: Vec<(Vec<u8>, u64)>,
}

impl<W: Write + Seek> BoltFile<W> {
    /// Begins a file at the start of `out`.
    pub(crate) fn new(mut out: W) -> io::Result<Self> {
        out.seek(SeekFrom::Start(FIRST_PAGES * PAGE_BYTES as u64))?;
        Ok(Self { out, next_page: FIRST_PAGES, buckets: Vec::new() })
    }

    /// Begins the next bucket; names must be in order.
    pub(crate) fn bucket(&mut self, name: &[u8]) -> Bucket<'_, W> {
        Bucket { file: self, name: name.to_vec(), leaf: Leaf::default(), leaves: Vec::new() }
    }

    /// Writes the tree of the buckets and the first pages.
    pub(crate) fn finish(mut self) -> io::Result<W> {
        let mut leaf = Leaf::default();
        let mut leaves = Vec::new();
        for (name, root) in std::mem::take(&mut self.buckets) {
            // The root of the bucket, and its sequence, which nobody uses.
            let mut value = root.to_le_bytes().to_vec();
            value.extend_from_slice(&[0; 8]);
            if !leaf.has_room_for(&name, &value) {
                leaves.push(self.write_leaf(&mut leaf)?);
            }
            leaf.push(BUCKET, &name, &value);
        }
        leaves.push(self.write_leaf(&mut leaf)?);
        let root = self.write_branches(leaves)?;
        self.out.seek(SeekFrom::Start(0))?;
        for number in [0, 1] {
            let page = meta_page(number, root, self.next_page);
            self.out.write_all(&page)?;
        }
        self.out.write_all(&page_of(FREE_LIST_PAGE, FREE_LIST, 0, &[]))?;
        self.out.flush()?;
        Ok(self.out)
    }

    fn write_leaf(&mut self, leaf: &mut Leaf) -> io::Result<Child> {
        let leaf = std::mem::take(leaf);
        let offset = leaf.elements.len() * ELEMENT_BYTES;
        let mut body = Vec::with_capacity(offset + leaf.data.len());
        for (place, element) in leaf.elements.iter().enumerate() {
            // Positions are counted from the element.
            let position = offset - place * ELEMENT_BYTES + element.start;
            for number in [element.flags, position as u32, element.key_bytes, element.value_bytes] {
                body.extend_from_slice(&number.to_le_bytes());
            }
        }
        body.extend_from_slice(&leaf.data);
        let page = self.write_page(LEAF, leaf.elements.len(), &body)?;
        Ok(Child { first_key: leaf.first_key(), page })
    }

    /// Writes the branches above pages, level by level; returns the root.
    fn write_branches(&mut self, mut children: Vec<Child>) -> io::Result<u64> {
        while children.len() > 1 {
            let mut parents = Vec::new();
            let mut rest = &children[..];
            while !rest.is_empty() {
                let mut bytes = HEADER_BYTES;
                let fitting = rest.iter().take_while(|child| {
                    bytes += ELEMENT_BYTES + child.first_key.len();
                    bytes <= PAGE_BYTES
                });
                // A branch of one child would be no tree.
                let count = fitting.count().max(2).min(rest.len());
                let (these, others) = rest.split_at(count);
                parents.push(self.write_branch(these)?);
                rest = others;
            }
            children = parents;
        }
        Ok(children.first().map_or(0, |child| child.page))
    }

    fn write_branch(&mut self, children: &[Child]) -> io::Result<Child> {
        let mut position = children.len() * ELEMENT_BYTES;
        let mut body = Vec::new();
        let mut keys = Vec::new();
        for Child { first_key, page } in children {
            body.extend_from_slice(&(position as u32).to_le_bytes());
            body.extend_from_slice(&(first_key.len() as u32).to_le_bytes());
            body.extend_from_slice(&page.to_le_bytes());
            keys.extend_from_slice(first_key);
            position = position + first_key.len() - ELEMENT_BYTES;
        }
        body.extend_from_slice(&keys);
        let page = self.write_page(BRANCH, children.len(), &body)?;
        let first_key = children.first().map(|child| child.first_key.clone()).unwrap_or_default();
        Ok(Child { first_key, page })
    }

    /// Writes a page, which may be longer than one; returns its number.
    fn write_page(&mut self, flags: u16, count: usize, body: &[u8]) -> io::Result<u64> {
        let number = self.next_page;
        let page = page_of(number, flags, count, body);
        self.next_page += (page.len() / PAGE_BYTES) as u64;
        self.out.write_all(&page)?;
        Ok(number)
    }
}

/// A bucket in the making.
pub(crate) struct Bucket<'a, W> {
    file: &'a mut BoltFile<W>,
    name: Vec<u8>,
    leaf: Leaf,
    leaves: Vec<Child>,
}

impl<W: Write + Seek> Bucket<'_, W> {
    /// Adds a row; keys must be in order.
    pub(crate) fn push(&mut self, key: &[u8], value: &[u8]) -> io::Result<()> {
        if !self.leaf.has_room_for(key, value) {
            self.leaves.push(self.file.write_leaf(&mut self.leaf)?);
        }
        self.leaf.push(0, key, value);
        Ok(())
    }

    /// Ends the bucket.
    pub(crate) fn finish(mut self) -> io::Result<()> {
        if !self.leaf.elements.is_empty() || self.leaves.is_empty() {
            self.leaves.push(self.file.write_leaf(&mut self.leaf)?);
        }
        let root = self.file.write_branches(self.leaves)?;
        self.file.buckets.push((self.name, root));
        Ok(())
    }
}

/// The rows of one leaf page.
#[derive(Default)]
struct Leaf {
    elements: Vec<Element>,
    data: Vec<u8>,
}

struct Element {
    flags: u32,
    /// Where its key begins in the data.
    start: usize,
    key_bytes: u32,
    value_bytes: u32,
}

impl Leaf {
    /// A row that is longer than a page has a longer page of its own.
    fn has_room_for(&self, key: &[u8], value: &[u8]) -> bool {
        let rows = (self.elements.len() + 1) * ELEMENT_BYTES;
        let bytes = HEADER_BYTES + rows + self.data.len() + key.len() + value.len();
        self.elements.is_empty() || bytes <= PAGE_BYTES
    }

    fn push(&mut self, flags: u32, key: &[u8], value: &[u8]) {
        let start = self.data.len();
        // Rows are far below 4 GiB: a value is at most a request.
        let key_bytes = key.len() as u32;
        let value_bytes = value.len() as u32;
        self.elements.push(Element { flags, start, key_bytes, value_bytes });
        self.data.extend_from_slice(key);
        self.data.extend_from_slice(value);
    }

    fn first_key(&self) -> Vec<u8> {
        let first = self.elements.first().map_or(0, |element| element.key_bytes as usize);
        self.data.get(..first).unwrap_or_default().to_vec()
    }
}

/// Returns a page with its header, filled up with zeros.
fn page_of(number: u64, flags: u16, count: usize, body: &[u8]) -> Vec<u8> {
    let pages = (HEADER_BYTES + body.len()).div_ceil(PAGE_BYTES);
    let mut page = Vec::with_capacity(pages * PAGE_BYTES);
    page.extend_from_slice(&number.to_le_bytes());
    page.extend_from_slice(&flags.to_le_bytes());
    page.extend_from_slice(&(count as u16).to_le_bytes());
    page.extend_from_slice(&(pages as u32 - 1).to_le_bytes());
    page.extend_from_slice(body);
    page.resize(pages * PAGE_BYTES, 0);
    page
}

/// Returns a page that describes the file; its number is that of the transaction too.
fn meta_page(number: u64, root: u64, pages: u64) -> Vec<u8> {
    let mut meta = Vec::new();
    for number in [MAGIC, VERSION, PAGE_BYTES as u32, 0] {
        meta.extend_from_slice(&number.to_le_bytes());
    }
    let sequence = 0;
    for number in [root, sequence, FREE_LIST_PAGE, pages, number] {
        meta.extend_from_slice(&number.to_le_bytes());
    }
    let sum = fnv1a(&meta);
    meta.extend_from_slice(&sum.to_le_bytes());
    page_of(number, META, 0, &meta)
}

/// The FNV-1a hash with 64 bits.
fn fnv1a(bytes: &[u8]) -> u64 {
    const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0100_0000_01b3;
    bytes.iter().fold(OFFSET, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(PRIME))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Cursor;

    /// Reads the rows of a tree back: key, value, whether it is a bucket.
    fn rows(file: &[u8], page: u64, found: &mut Vec<(Vec<u8>, Vec<u8>, bool)>) {
        let start = page as usize * PAGE_BYTES;
        let number = |at: usize, bytes: usize| {
            let mut number = [0; 8];
            number[..bytes].copy_from_slice(&file[at..at + bytes]);
            u64::from_le_bytes(number) as usize
        };
        assert_eq!(number(start, 8), page as usize, "each page has its number");
        let flags = number(start + 8, 2);
        let count = number(start + 10, 2);
        for place in 0..count {
            let element = start + HEADER_BYTES + place * ELEMENT_BYTES;
            if flags == usize::from(BRANCH) {
                rows(file, number(element + 8, 8) as u64, found);
                continue;
            }
            assert_eq!(flags, usize::from(LEAF));
            let key = element + number(element + 4, 4);
            let value = key + number(element + 8, 4);
            let end = value + number(element + 12, 4);
            let is_bucket = number(element, 4) == BUCKET as usize;
            found.push((file[key..value].to_vec(), file[value..end].to_vec(), is_bucket));
        }
    }

    #[test]
    fn buckets_and_rows_are_read_back() {
        let mut file = BoltFile::new(Cursor::new(Vec::new())).expect("begun");
        file.bucket(b"empty").finish().expect("written");
        let all: Vec<_> = (0..5000u32)
            .map(|n| (n.to_be_bytes().to_vec(), vec![b'v'; n as usize % 97 * (n as usize % 89)]))
            .collect();
        let mut bucket = file.bucket(b"key");
        all.iter().for_each(|(key, value)| bucket.push(key, value).expect("written"));
        bucket.finish().expect("written");
        let bytes = file.finish().expect("finished").into_inner();
        assert_eq!(bytes.len() % PAGE_BYTES, 0);
        let root = u64::from_le_bytes(bytes[32..40].try_into().expect("8 bytes"));
        let mut buckets = Vec::new();
        rows(&bytes, root, &mut buckets);
        let names: Vec<_> = buckets.iter().map(|(name, _, is)| (&name[..], *is)).collect();
        assert_eq!(names, [(&b"empty"[..], true), (&b"key"[..], true)]);
        let root_of = |value: &[u8]| u64::from_le_bytes(value[..8].try_into().expect("8 bytes"));
        let mut found = Vec::new();
        rows(&bytes, root_of(&buckets[0].1), &mut found);
        assert!(found.is_empty());
        rows(&bytes, root_of(&buckets[1].1), &mut found);
        let found: Vec<_> = found.into_iter().map(|(key, value, _)| (key, value)).collect();
        assert!(found == all);
    }

    #[test]
    fn the_hash_is_the_known_one() {
        assert_eq!(fnv1a(b"a"), 0xaf63_dc4c_8601_ec8c);
    }
}
