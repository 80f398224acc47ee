//! The paths in the tokens of a module: `a::b`, and each branch of `use a::{b, c::d as e}`.

use proc_macro2::{Delimiter, Spacing, TokenStream, TokenTree};

/// A path as it is written, `crate::a::F`.
pub(super) struct Path {
    /// `*` is the last name of `use a::*`. A `self` at the end is left out.
    pub(super) names: Vec<String>,
    /// `E` in `use a::F as E`.
    alias: Option<String>,
}

impl Path {
    /// The name that the path has where it is imported.
    pub(super) fn imported_as(&self) -> &str {
        let name = self.alias.as_deref().or(self.names.last().map(|s| &**s));
        name.unwrap_or_default()
    }
}

/// The paths that `use` imports, and the tokens behind its `;`. `tokens` are those behind `use`.
pub(super) fn imports(tokens: &[TokenTree]) -> (Vec<Path>, &[TokenTree]) {
    let end = tokens.iter().position(|token| is_punct(token, ';'));
    let (mut path, rest) = tokens.split_at(end.unwrap_or(tokens.len()));
    if let [one, other, inner @ ..] = path
        && is_punct(one, ':')
        && is_punct(other, ':')
    {
        path = inner;
    }
    let mut found = Vec::new();
    read(path, Vec::new(), true, &mut found);
    (found, rest)
}

/// The path that begins at `tokens`, with its branches, and the tokens behind it.
pub(super) fn path(tokens: &[TokenTree]) -> (Vec<Path>, &[TokenTree]) {
    let mut found = Vec::new();
    let rest = read(tokens, Vec::new(), false, &mut found);
    (found, rest)
}

fn read<'t>(
    mut rest: &'t [TokenTree],
    mut names: Vec<String>,
    is_use: bool,
    found: &mut Vec<Path>,
) -> &'t [TokenTree] {
    loop {
        match rest {
            [TokenTree::Ident(name), after @ ..] => {
                names.push(name.to_string());
                rest = after;
            }
            [TokenTree::Group(group), after @ ..] if group.delimiter() == Delimiter::Brace => {
                let branches: Vec<_> = group.stream().into_iter().collect();
                for branch in branches.split(|token| is_punct(token, ',')) {
                    if !branch.is_empty() {
                        read(branch, names.clone(), is_use, found);
                    }
                }
                return after;
            }
            [token, after @ ..] if is_punct(token, '*') => {
                names.push("*".to_owned());
                rest = after;
            }
            _ => break,
        }
        match rest {
            [one, other, after @ ..] if is_separator(one, other) && is_name(after) => rest = after,
            _ => break,
        }
    }
    let mut alias = None;
    if let [
        TokenTree::Ident(keyword),
        TokenTree::Ident(name),
        after @ ..,
    ] = rest
        && is_use
        && keyword == "as"
    {
        (alias, rest) = (Some(name.to_string()), after);
    }
    if names.len() > 1 && names.last().is_some_and(|name| name == "self") {
        names.pop();
    }
    found.push(Path { names, alias });
    rest
}

fn is_name(tokens: &[TokenTree]) -> bool {
    match tokens.first() {
        Some(TokenTree::Ident(_)) => true,
        Some(TokenTree::Group(group)) => group.delimiter() == Delimiter::Brace,
        Some(token) => is_punct(token, '*'),
        None => false,
    }
}

/// Whether no path begins behind these tokens: at a field (`.a`), a lifetime (`'a`), or a name that goes on (`::a`).
pub(super) fn is_continued(before: &[TokenTree]) -> bool {
    match before {
        [.., one, other] if is_separator(one, other) => true,
        // `0..a`
        [.., one, other] if is_punct(one, '.') && is_punct(other, '.') => false,
        [.., token] => is_punct(token, '.') || is_punct(token, '\''),
        [] => false,
    }
}

/// `::`, which is not the `:` of `field: ::std::io`.
fn is_separator(one: &TokenTree, other: &TokenTree) -> bool {
    let is_joint = matches!(one, TokenTree::Punct(punct) if punct.spacing() == Spacing::Joint);
    is_joint && is_punct(one, ':') && is_punct(other, ':')
}

pub(super) fn is_punct(token: &TokenTree, character: char) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == character)
}

/// All tokens but those of items behind `#[cfg(test)]`.
pub(super) fn without_tests(tokens: &TokenStream) -> Vec<TokenTree> {
    let mut kept = Vec::new();
    let mut tokens = tokens.clone().into_iter().peekable();
    while let Some(token) = tokens.next() {
        if is_punct(&token, '#')
            && let Some(TokenTree::Group(attribute)) = tokens.peek()
            && is_for_tests(&attribute.stream())
        {
            // Up to the end of the item that it belongs to.
            tokens.next();
            while let Some(token) = tokens.next() {
                let is_body = matches!(&token, TokenTree::Group(group) if group.delimiter() == Delimiter::Brace);
                // `use a::{b};` goes on behind its braces.
                if is_punct(&token, ';')
                    || is_body && !tokens.peek().is_some_and(|next| is_punct(next, ';'))
                {
                    break;
                }
            }
            continue;
        }
        kept.push(token);
    }
    kept
}

/// `cfg(test)`, `cfg(all(test, …))`.
fn is_for_tests(attribute: &TokenStream) -> bool {
    let mut names = Vec::new();
    idents(attribute, &mut names);
    names.first().is_some_and(|name| name == "cfg")
        && names.iter().any(|name| name == "test")
        && !names.iter().any(|name| name == "not" || name == "any")
}

fn idents(tokens: &TokenStream, names: &mut Vec<String>) {
    for token in tokens.clone() {
        match token {
            TokenTree::Ident(name) => names.push(name.to_string()),
            TokenTree::Group(group) => idents(&group.stream(), names),
            _ => {}
        }
    }
}
