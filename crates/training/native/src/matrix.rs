//! The three matrix products that a dense layer needs, on row-major slices.
//!
//! The loops are written so that the compiler vectorises them, with a fixed order of additions: results are the same on every
//! machine.

/// Parallel partial sums: four vectors of the narrowest SIMD registers.
const LANES: usize = 16;
/// Rows that are processed together, to reuse loaded registers.
const ROWS: usize = 4;
/// Elements of the right matrix that all rows of the left one use before the next block: half of a small L1 cache.
const BLOCK: usize = 4096;

/// `out[m x n] = a[m x k] * transpose(b[n x k])`
pub fn times_transposed(a: &[f32], b: &[f32], out: &mut [f32], k: usize, n: usize) {
    let rows_of_block = (BLOCK / k.max(1)).max(ROWS) / ROWS * ROWS;
    for (block, b) in b.chunks(rows_of_block * k).enumerate() {
        let first = block * rows_of_block;
        for (a, out) in a.chunks_exact(k).zip(out.chunks_exact_mut(n)) {
            let out = &mut out[first..];
            let mut quads = b.chunks_exact(ROWS * k);
            let mut column = 0;
            for quad in &mut quads {
                out[column..column + ROWS].copy_from_slice(&dots(a, quad, k));
                column += ROWS;
            }
            for b in quads.remainder().chunks_exact(k) {
                out[column] = dot(a, b);
                column += 1;
            }
        }
    }
}

/// `out[m x n] = a[m x k] * b[k x n]`
pub fn times(a: &[f32], b: &[f32], out: &mut [f32], k: usize, n: usize) {
    out.fill(0.0);
    for (a, out) in a.chunks_exact(k).zip(out.chunks_exact_mut(n)) {
        add_rows(out, a, b, n);
    }
}

/// `out[m x n] += transpose(a[k x m]) * b[k x n]`
pub fn add_transposed_times(a: &[f32], b: &[f32], out: &mut [f32], m: usize, n: usize) {
    let mut a_quads = a.chunks_exact(ROWS * m);
    let mut b_quads = b.chunks_exact(ROWS * n);
    for (a, b) in (&mut a_quads).zip(&mut b_quads) {
        for (row, out) in out.chunks_exact_mut(n).enumerate() {
            add_rows(out, &[a[row], a[m + row], a[2 * m + row], a[3 * m + row]], b, n);
        }
    }
    for (a, b) in a_quads.remainder().chunks_exact(m).zip(b_quads.remainder().chunks_exact(n)) {
        for (scale, out) in a.iter().zip(out.chunks_exact_mut(n)) {
            add_rows(out, &[*scale], b, n);
        }
    }
}

/// Adds the rows of `b`, each multiplied by its scale.
fn add_rows(out: &mut [f32], scales: &[f32], b: &[f32], n: usize) {
    let (scale_quads, scale_rest) = scales.as_chunks::<ROWS>();
    let mut b_quads = b.chunks_exact(ROWS * n);
    for (scales, b) in scale_quads.iter().zip(&mut b_quads) {
        let (b0, b) = b.split_at(n);
        let (b1, b) = b.split_at(n);
        let (b2, b3) = b.split_at(n);
        let rows = b0.iter().zip(b1).zip(b2.iter().zip(b3));
        for (out, ((b0, b1), (b2, b3))) in out.iter_mut().zip(rows) {
            *out += scales[0] * b0 + scales[1] * b1 + (scales[2] * b2 + scales[3] * b3);
        }
    }
    let rest = &b[scale_quads.len() * ROWS * n..];
    for (scale, b) in scale_rest.iter().zip(rest.chunks_exact(n)) {
        for (out, b) in out.iter_mut().zip(b) {
            *out += scale * b;
        }
    }
}

/// The dot products of one row with four rows.
fn dots(a: &[f32], quad: &[f32], k: usize) -> [f32; ROWS] {
    let mut sums = [[0.0f32; LANES]; ROWS];
    let (a_lanes, a_rest) = a.as_chunks::<LANES>();
    let rows: [&[f32]; ROWS] = std::array::from_fn(|row| &quad[row * k..(row + 1) * k]);
    let lanes: [&[[f32; LANES]]; ROWS] = rows.map(|row| row.as_chunks().0);
    for (index, a) in a_lanes.iter().enumerate() {
        for (sums, lanes) in sums.iter_mut().zip(lanes) {
            let b = &lanes[index];
            for lane in 0..LANES {
                sums[lane] += a[lane] * b[lane];
            }
        }
    }
    std::array::from_fn(|row| {
        let rest = &rows[row][a_lanes.len() * LANES..];
        total(&sums[row]) + a_rest.iter().zip(rest).map(|(a, b)| a * b).sum::<f32>()
    })
}

fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut sums = [0.0f32; LANES];
    let ((a_lanes, a_rest), (b_lanes, b_rest)) = (a.as_chunks::<LANES>(), b.as_chunks::<LANES>());
    for (a, b) in a_lanes.iter().zip(b_lanes) {
        for lane in 0..LANES {
            sums[lane] += a[lane] * b[lane];
        }
    }
    total(&sums) + a_rest.iter().zip(b_rest).map(|(a, b)| a * b).sum::<f32>()
}

fn total(sums: &[f32; LANES]) -> f32 {
    sums.iter().sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Small integers: all sums are exact, so every order of additions gives the same result.
    fn counted(rows: usize, columns: usize, salt: usize) -> Vec<f32> {
        (0..rows * columns).map(|i| ((i * 7 + salt * 13 + i / 5) % 11) as f32 - 5.0).collect()
    }

    fn naive(
        m: usize,
        k: usize,
        n: usize,
        a: impl Fn(usize, usize) -> f32,
        b: impl Fn(usize, usize) -> f32,
    ) -> Vec<f32> {
        let element = |i, j| (0..k).map(|p| a(i, p) * b(p, j)).sum();
        (0..m * n).map(|at| element(at / n, at % n)).collect()
    }

    #[test]
    fn products_match_the_definition() {
        for m in [1, 2, 5, 8] {
            for k in [1, 3, 4, 16, 17, 37, 64, 1100] {
                for n in [1, 4, 7, 10, 33] {
                    let (a, b) = (counted(m, k, 1), counted(k, n, 2));
                    let expected = naive(m, k, n, |i, p| a[i * k + p], |p, j| b[p * n + j]);
                    let mut out = vec![1.0; m * n];
                    times(&a, &b, &mut out, k, n);
                    assert_eq!(out, expected, "{m} {k} {n}");

                    let b = counted(n, k, 3);
                    let expected = naive(m, k, n, |i, p| a[i * k + p], |p, j| b[j * k + p]);
                    times_transposed(&a, &b, &mut out, k, n);
                    assert_eq!(out, expected, "{m} {k} {n}");

                    let (a, b) = (counted(k, m, 4), counted(k, n, 5));
                    let mut expected = naive(m, k, n, |i, p| a[p * m + i], |p, j| b[p * n + j]);
                    expected.iter_mut().for_each(|element| *element += 1.0);
                    out.fill(1.0);
                    add_transposed_times(&a, &b, &mut out, m, n);
                    assert_eq!(out, expected, "{m} {k} {n}");
                }
            }
        }
    }
}
