/*
 * A conversion of one host beside other writers, as a model for the checker SPIN.
 *
 * A root R has two cards A and B, with three vGPUs. In the layout flat all three are stock of R; in the layout devices
 * A offers two and B one. Guests 0 and 1 run on A and B; the scheduler may claim for a third. Each guest also has disk
 * on a storage that is none of ours. Agents convert the host to the layout devices, or with BACK to flat.
 *
 * A step of an agent is one request of the client (reportclient/client.py, reportclient/writer.py), and placement
 * carries out each request whole. tests/protocol/test_protocol.py replays requests of the real client in this model.
 *
 * Macros: AGENTS, CLAIMS (writes of nova and the scheduler), CRASHES, LOSSES (answers that are lost); BACK; REPLAY (all
 * steps are those that the process Replay names); and faults that the checker must find: DROP_GENERATION,
 * CREATE_AFTER_RESHAPE, LOSE_FOREIGN.
 */

#ifndef AGENTS
#define AGENTS 2
#endif
#ifndef CLAIMS
#define CLAIMS 2
#endif
#ifndef CRASHES
#define CRASHES 1
#endif
#ifndef LOSSES
#define LOSSES 1
#endif

#define GUESTS 3
#define UNITS 3
#define R 0
#define A 1
#define B 2
#define NOWHERE 3

#ifdef BACK
#define WANTED(p) (p == R -> UNITS : 0)
#else
#define WANTED(p) (p == R -> 0 : (p == A -> 2 : 1))
#endif

mtype = { list, read, allocations, consumer, create, describe, reshape, delete,
          claim, start, release_read, release, resize_read, resize, fault };

#ifdef REPLAY
chan step = [0] of { mtype, byte };
#define STEP(kind, which) step ! kind, which
#else
#define STEP(kind, which) skip
#endif

/* What placement holds. */
byte stock[3];
bool stands[3];
bool described[3];  /* has its traits */
byte generation[3];
byte on[GUESTS];  /* the provider of a guest's vGPU, or NOWHERE */
byte disk[GUESTS];  /* of a guest, on the storage that is none of ours */
byte changed[GUESTS];  /* a guest's consumer generation */

/* What is so outside of placement. */
byte card[GUESTS];  /* on which a guest really runs; NOWHERE: it has not started */
bool owed[GUESTS];  /* the cloud counts on this guest's rows */
byte owed_disk[GUESTS];
bool guessed[GUESTS];  /* an agent did not see it run, and gave it any card with room: an audit looks at it later */

byte crashes = 0, losses = 0, claims = 0;
byte finished = 0;

#define LASTS(p) (!there[p] || offered[p] == 0 || WANTED(p) > 0)  /* of what an agent has read */
#define HOLDS(g, p) (on[g] == p -> 1 : 0)
#define USED(p) (HOLDS(0, p) + HOLDS(1, p) + HOLDS(2, p))
#define RIGHT(g) (owed[g] == (on[g] != NOWHERE) && (!owed[g] || disk[g] == owed_disk[g]))
#define PLACED(g) (guessed[g] || on[g] == NOWHERE || on[g] == R || card[g] == NOWHERE || card[g] == on[g])

/* The laws, after each write. */
inline check() {
    assert(stock[R] + stock[A] + stock[B] == UNITS);  /* no sum changes, and nothing is on offer twice */
    assert(USED(R) <= stock[R] && USED(A) <= stock[A] && USED(B) <= stock[B]);  /* no unit has two guests */
    assert(RIGHT(0) && RIGHT(1) && RIGHT(2));  /* no row is lost, and none comes back */
    assert(PLACED(0) && PLACED(1) && PLACED(2));  /* each guest that an agent saw is where it runs */
}

/* One writer that converts. Its variables are what it has read in this attempt. */
proctype Agent() {
    byte seen[3];  /* generation by the listing, or by the answer to its last write */
    byte offered[3];
    bool there[3], traits[3], known[3], listed[3];
    byte home[GUESTS];  /* the survey */
    bool moves[GUESTS], asked[GUESTS];
    byte rows[GUESTS], version[GUESTS];
    byte p, g;
    bool fits, surveyed;

again:
    atomic {
        for (p : R .. B) { known[p] = false; listed[p] = false; there[p] = false; traits[p] = false; offered[p] = 0; seen[p] = 0 }
        for (g : 0 .. GUESTS - 1) { moves[g] = false; asked[g] = false; rows[g] = 0; version[g] = 0 }
        fits = false;
        if
        :: true -> for (g : 0 .. GUESTS - 1) { home[g] = card[g] }; surveyed = true  /* a new pass looks at the host */
        :: surveyed  /* another attempt of the same pass */
        fi
    }
    STEP(list, 0);
    d_step {  /* all generations in one answer */
        for (p : R .. B) { there[p] = stands[p]; seen[p] = generation[p] }
    }
    /* Stock and traits of each provider, in any order; the listing's generation is the lowest that they can have. */
    do
    :: there[R] && !known[R] -> STEP(read, R); atomic { if :: stands[R] -> offered[R] = stock[R]; traits[R] = described[R]; known[R] = true :: else -> goto again fi }
    :: there[A] && !known[A] -> STEP(read, A); atomic { if :: stands[A] -> offered[A] = stock[A]; traits[A] = described[A]; known[A] = true :: else -> goto again fi }
    :: there[B] && !known[B] -> STEP(read, B); atomic { if :: stands[B] -> offered[B] = stock[B]; traits[B] = described[B]; known[B] = true :: else -> goto again fi }
    :: known[R] && (known[A] || !there[A]) && (known[B] || !there[B]) -> break
    :: crashes < CRASHES -> STEP(fault, 0); crashes++; surveyed = false; goto again
    od;
    if
    :: offered[R] == WANTED(R) && offered[A] == WANTED(A) && offered[B] == WANTED(B) -> goto sweep
    :: else
    fi;
    /* Who holds what loses its stock, in any order; others may be read too. The answer carries the generation. */
    do
    :: there[R] && !listed[R] -> p = R; goto holders
    :: there[A] && !listed[A] -> p = A; goto holders
    :: there[B] && !listed[B] -> p = B; goto holders
    :: (listed[R] || LASTS(R)) && (listed[A] || LASTS(A)) && (listed[B] || LASTS(B)) -> break
    :: false ->
holders:
        STEP(allocations, p);
        atomic {
            listed[p] = true;
            if
            :: !stands[p] || generation[p] != seen[p] -> goto again
            :: else -> for (g : 0 .. GUESTS - 1) { if :: on[g] == p && WANTED(p) == 0 -> moves[g] = true :: else fi }
            fi
        }
    od;
    /* Each consumer whole: its rows elsewhere are sent again with those that move. */
    do
    :: moves[0] && !asked[0] -> STEP(consumer, 0); d_step { rows[0] = disk[0]; version[0] = changed[0]; fits = (on[0] != NOWHERE); asked[0] = true } ; if :: fits :: else -> goto again fi
    :: moves[1] && !asked[1] -> STEP(consumer, 1); d_step { rows[1] = disk[1]; version[1] = changed[1]; fits = (on[1] != NOWHERE); asked[1] = true } ; if :: fits :: else -> goto again fi
    :: moves[2] && !asked[2] -> STEP(consumer, 2); d_step { rows[2] = disk[2]; version[2] = changed[2]; fits = (on[2] != NOWHERE); asked[2] = true } ; if :: fits :: else -> goto again fi
    :: (asked[0] || !moves[0]) && (asked[1] || !moves[1]) && (asked[2] || !moves[2]) -> break
    :: crashes < CRASHES -> STEP(fault, 0); crashes++; surveyed = false; goto again
    od;
#if !defined(BACK) && !defined(CREATE_AFTER_RESHAPE)
    do
    :: !there[A] -> STEP(create, A); atomic { if :: !stands[A] -> stands[A] = true; generation[A] = 0; described[A] = false; stock[A] = 0; seen[A] = 0; there[A] = true :: stands[A] && generation[A] == 0 -> seen[A] = 0; there[A] = true :: else -> goto again fi }
    :: !there[B] -> STEP(create, B); atomic { if :: !stands[B] -> stands[B] = true; generation[B] = 0; described[B] = false; stock[B] = 0; seen[B] = 0; there[B] = true :: stands[B] && generation[B] == 0 -> seen[B] = 0; there[B] = true :: else -> goto again fi }
    :: there[A] && there[B] -> break
    :: crashes < CRASHES -> STEP(fault, 0); crashes++; surveyed = false; goto again
    od;
    do
    :: !traits[A] -> STEP(describe, A); atomic { if :: stands[A] && generation[A] == seen[A] -> described[A] = true; generation[A]++; seen[A] = generation[A]; traits[A] = true :: else -> goto again fi }
    :: !traits[B] -> STEP(describe, B); atomic { if :: stands[B] && generation[B] == seen[B] -> described[B] = true; generation[B]++; seen[B] = generation[B]; traits[B] = true :: else -> goto again fi }
    :: traits[A] && traits[B] -> break
    :: crashes < CRASHES -> STEP(fault, 0); crashes++; surveyed = false; goto again
    od;
#endif
    /* One request: all stock and all rows, by the generations that were read. */
    STEP(reshape, 0);
    atomic {
        fits = generation[R] == seen[R] && (!there[A] || (stands[A] && generation[A] == seen[A])) && (!there[B] || (stands[B] && generation[B] == seen[B]));
        for (g : 0 .. GUESTS - 1) {
            if
            :: moves[g] ->
#ifndef DROP_GENERATION
                fits = fits && changed[g] == version[g]
#else
                skip
#endif
            :: else -> fits = fits && (on[g] == NOWHERE || WANTED(on[g]) > 0)  /* stock in use stays */
            fi
        }
        if
        :: !fits -> goto again
        :: else ->
            for (p : R .. B) {
                if
                :: there[p] -> stock[p] = WANTED(p); generation[p]++
                :: else
                fi
            }
            for (g : 0 .. GUESTS - 1) {
                if
                :: moves[g] ->
#ifdef BACK
                    on[g] = R;
#else
                    if
                    :: home[g] != NOWHERE -> on[g] = home[g]
                    :: home[g] == NOWHERE && USED(A) < WANTED(A) -> on[g] = A; guessed[g] = true
                    :: home[g] == NOWHERE && USED(B) < WANTED(B) -> on[g] = B; guessed[g] = true
                    fi;
#endif
#ifdef LOSE_FOREIGN
                    disk[g] = 0;
#else
                    disk[g] = rows[g];
#endif
                    changed[g]++
                :: else
                fi
            }
            check();
            if
            :: losses < LOSSES -> losses++; goto again  /* it took effect, and the answer was lost */
            :: true
            fi
        fi
    }
sweep:
#ifdef BACK
    /* Emptied providers go. */
    do
    :: there[A] -> STEP(delete, A); atomic { if :: stands[A] && USED(A) > 0 -> goto again :: else -> stands[A] = false; described[A] = false; stock[A] = 0; generation[A] = 0; there[A] = false; check() fi }
    :: there[B] -> STEP(delete, B); atomic { if :: stands[B] && USED(B) > 0 -> goto again :: else -> stands[B] = false; described[B] = false; stock[B] = 0; generation[B] = 0; there[B] = false; check() fi }
    :: !there[A] && !there[B] -> break
    :: crashes < CRASHES -> STEP(fault, 0); crashes++; surveyed = false; goto again
    od;
#endif
    finished++
}

/* The scheduler and nova: a new guest, guests that end, and guests whose disk grows. */
proctype Cloud() {
    byte p, version, where;

    do
    :: claims < CLAIMS && !owed[2] ->
        /* The scheduler chooses a provider, and placement looks whether there is room. */
        if :: p = R :: p = A :: p = B fi;
        STEP(claim, p);
        atomic {
            claims++;
            if
            :: stands[p] && USED(p) < stock[p] ->
                on[2] = p; disk[2] = 1; changed[2]++; generation[p]++; owed[2] = true; owed_disk[2] = 1; check()
            :: else
            fi
        }
        if
        :: owed[2] ->
            /* The hypervisor gives it a device: of its card, or of any card that has one free. */
            STEP(start, 2);
            atomic {
                if
                :: on[2] == A || on[2] == B -> card[2] = on[2]
                :: else -> card[2] = A  /* B is full as long as guest 1 runs; A has one left */
                fi;
                check()
            }
        :: else
        fi
    :: claims < CLAIMS && owed[0] ->  /* a guest ends: read, then written with its generation */
        STEP(release_read, 0);
        atomic { claims++; version = changed[0] }
        STEP(release, 0);
        atomic {
            if
            :: changed[0] == version ->  /* the consumer is gone, so no generation fits any more */
                on[0] = NOWHERE; disk[0] = 0; changed[0]++; owed[0] = false; card[0] = NOWHERE; check()
            :: else  /* refused: nova says so to a person */
            fi
        }
    :: claims < CLAIMS && owed[1] && owed_disk[1] < 3 ->  /* a resize replaces all rows */
        STEP(resize_read, 1);
        atomic { claims++; version = changed[1]; where = on[1] }
        STEP(resize, 1);
        atomic {
            if
            :: changed[1] == version -> disk[1]++; owed_disk[1] = disk[1]; changed[1]++; generation[where]++; check()
            :: else
            fi
        }
    :: break  /* or nothing more happens */
    od
}

#ifdef REPLAY
/* The checker reaches the last assertion if and only if the model can take these steps in this order. */
active proctype Replay() {
#include "steps.pml"
    assert(false)
}
#endif

init {
    byte count;
    atomic {
        stands[R] = true;
        described[R] = true;
        on[0] = A; on[1] = B; on[2] = NOWHERE;
        card[0] = A; card[1] = B; card[2] = NOWHERE;
        owed[0] = true; owed[1] = true;
        disk[0] = 1; disk[1] = 1; owed_disk[0] = 1; owed_disk[1] = 1;
        changed[0] = 1; changed[1] = 1;
#ifdef BACK
        stands[A] = true; stands[B] = true; described[A] = true; described[B] = true;
        stock[A] = 2; stock[B] = 1; stock[R] = 0;
        generation[A] = 1; generation[B] = 1;
#else
        stock[R] = UNITS;
        on[0] = R; on[1] = R;
#endif
        check();
        for (count : 1 .. AGENTS) { run Agent() }
        run Cloud()
    }
}

ltl ends { <> (finished == AGENTS) }
