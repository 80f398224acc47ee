//! The known word that a mistyped one was meant to be.

/// The known word closest to `got`, if one is close enough to be meant.
pub fn nearest<'a>(got: &str, known: &[&'a str]) -> Option<&'a str> {
    // A long word is no slip of one that we know, and comparing takes time by its length.
    if got.len() > 64 {
        return None;
    }
    let plain = plain(got);
    let most = (plain.len() / 3).max(1);
    let near = known
        .iter()
        .map(|word| (slips(&plain, &self::plain(word)), *word));
    near.filter(|(slips, _)| *slips <= most)
        .min_by_key(|(slips, _)| *slips)
        .map(|(_, word)| word)
}

/// `On-Store Failure` is `onstorefailure`.
fn plain(word: &str) -> Vec<char> {
    let letters = word.chars().filter(|c| !matches!(c, '_' | '-' | ' '));
    letters.flat_map(char::to_lowercase).collect()
}

/// Letters to add, leave out, change or swap with their neighbour until one word is the other.
fn slips(a: &[char], b: &[char]) -> usize {
    let (mut earlier, mut last) = (Vec::new(), (0..=b.len()).collect::<Vec<_>>());
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let same = a[i - 1] == b[j - 1];
            let mut fewest = (last[j - 1] + usize::from(!same))
                .min(last[j] + 1)
                .min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                fewest = fewest.min(earlier[j - 2] + 1);
            }
            row.push(fewest);
        }
        earlier = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_of_the_finger_are_understood_and_other_words_are_not() {
        let known = ["rate", "burst", "on_store_failure", "id", "sliding_log"];
        assert_eq!(nearest("slidinglog", &known), Some("sliding_log"));
        assert_eq!(nearest("rat", &known), Some("rate"));
        assert_eq!(nearest("brust", &known), Some("burst"));
        assert_eq!(nearest("onStoreFailure", &known), Some("on_store_failure"));
        assert_eq!(nearest("ID", &known), Some("id"));
        assert_eq!(nearest("colour", &known), None);
        assert_eq!(nearest(&"rate".repeat(100), &known), None);
    }
}
