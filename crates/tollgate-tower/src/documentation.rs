//! The examples in the project's pages are doc tests, here where engine, layer and axum are at hand. A test sees to it that every page
//! with an example is listed.

macro_rules! pages {
    ($($page:ident: $text:expr,)*) => { $(#[doc = $text] struct $page;)* };
}

pages! {
    Readme: include_str!("../../../README.md"),
    Library: include_str!("../../../docs/quick-starts/library.md"),
    Axum: include_str!("../../../docs/quick-starts/axum.md"),
    Migration: include_str!("../../../docs/migration.md"),
}
