//! Many requests of one token bucket each, in one call of `single.lua`.

use super::parcel::{Packed, Parcel, double, figures};

/// Up to so many go this way also if several ask for one subject. For more it is better if it is read and written once, as
/// `tokens.lua` does.
const FEW: usize = 8;

/// What a call carries, if it can be one of these.
pub(super) fn manifest<'a>(
    parcels: impl ExactSizeIterator<Item = &'a Parcel>,
) -> Option<(Vec<&'a str>, Vec<u8>)> {
    let are_few = parcels.len() <= FEW;
    let mut keys: Vec<&str> = Vec::with_capacity(parcels.len());
    let (mut blob, mut last, mut count) = (Vec::new(), None, 0_u16);
    for parcel in parcels {
        let [charge] = parcel.charges.as_slice() else {
            return None;
        };
        let key = charge.address.key.as_str();
        // Where many ask for one subject, neighbours do.
        if !are_few && keys.last() == Some(&key) {
            return None;
        }
        keys.push(key);
        let shape = shape(charge);
        if last != Some(shape) {
            finish_row(&mut blob, last, count);
            (last, count) = (Some(shape), 0);
        }
        count += 1;
    }
    finish_row(&mut blob, last, count);
    Some((keys, blob))
}

/// What requests in a row are alike in.
type Shape = (bool, [[u8; 8]; 5]);

fn shape(charge: &Packed) -> Shape {
    let (_, figures) = figures(&charge.limit);
    let [x, y, z] = figures.map(double);
    (
        charge.shadow,
        [x, y, z, charge.address.id, double(charge.cost)],
    )
}

fn finish_row(blob: &mut Vec<u8>, shape: Option<Shape>, count: u16) {
    if let Some((shadow, numbers)) = shape {
        blob.extend(count.to_le_bytes());
        blob.push(u8::from(shadow));
        blob.extend(numbers.as_flattened());
    }
}
