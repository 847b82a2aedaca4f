/* AMX tiles of 16 rows and 64 bytes, where the processor has them and Linux permits their use. */
#include <stdint.h>

#if defined(__AMX_TILE__)
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>
#define TILE 16 /* rows */
#define PERMIT 0x1023 /* ARCH_REQ_XCOMP_PERM: Linux saves the tiles of those who ask for them */
#define TILES 18

static inline int tiles_are_permitted(void) { return syscall(SYS_arch_prctl, PERMIT, TILES) == 0; }

typedef struct { uint8_t palette, start, reserved[14]; uint16_t bytes[16]; uint8_t rows[16]; } tile_shapes;

/* Gives back what was configured before: llama.cpp does that once in a thread, and relies on it. */
static inline tile_shapes configure_tiles(void) {
    tile_shapes before, tiles = {1, 0};
    _tile_storeconfig(&before);
    for (int i = 0; i < 8; i++) tiles.bytes[i] = 64, tiles.rows[i] = TILE;
    __asm__ volatile("" : : "r"(&tiles) : "memory"); /* GCC 12 takes what is written here for unused */
    _tile_loadconfig(&tiles);
    return before;
}

static inline void restore_tiles(tile_shapes before) {
    __asm__ volatile("" : : "r"(&before) : "memory");
    if (before.palette)
        _tile_loadconfig(&before);
    else
        _tile_release();
}
#else
#define TILE 1
static inline int tiles_are_permitted(void) { return 0; }
typedef int tile_shapes;
static inline tile_shapes configure_tiles(void) { return 0; }
static inline void restore_tiles(tile_shapes before) {}
#endif
