// Rust as the DWARF reader has to read it: modules, generics, closures, traits, iterators inlined many deep.
mod geometry {
    pub mod flat {
        pub trait Area {
            fn area(&self) -> u64;
        }

        pub struct Square(pub u64);

        impl Area for Square {
            #[inline(never)]
            fn area(&self) -> u64 {
                (0..self.0).map(|x| x * self.0).filter(|x| x % 3 != 0).sum::<u64>() + super::twice(self.0)
            }
        }

        pub struct Grid<T>(pub Vec<T>);

        impl<T: Copy + Into<u64>> Grid<T> {
            #[inline(never)]
            pub fn total(&self) -> u64 {
                self.0.iter().copied().map(Into::into).fold(0u64, |a, b| a.wrapping_mul(31).wrapping_add(b))
            }
        }
    }

    #[inline]
    pub fn twice(n: u64) -> u64 {
        thrice(n) - n
    }

    #[inline]
    fn thrice(n: u64) -> u64 {
        n.wrapping_mul(3)
    }
}

use geometry::flat::{Area, Grid, Square};

#[inline(never)]
fn sorted(n: u64) -> Vec<u32> {
    let mut v: Vec<u32> = (0..n as u32).map(|x| x.wrapping_mul(2654435761)).collect();
    v.sort_by(|a, b| b.cmp(a));
    v
}

fn main() {
    let n = std::env::args().count() as u64 * 50;
    let shapes: Vec<Box<dyn Area>> = (1..n).map(|i| Box::new(Square(i)) as Box<dyn Area>).collect();
    let total: u64 = shapes.iter().map(|s| s.area()).sum();
    let grid = Grid(sorted(n));
    println!("{} {}", total, grid.total());
}
