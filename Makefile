# The front door. `make run` starts weir, `make test` proves it; both install what they need.
#
#   make run      install what is missing, build, start weir with its data in ./weir-data
#   make test     the same for the tests: build everything, run it through CTest
#   make demo     start weir, load it for 20 s, print accepted / delivered / reconciled
#   make build    build/weir, Release; installs nothing
#   make deps     install the packages for building and testing
#   make bench    benchmarks against peers: ratios, one run      (BENCH="--quick" for a short one)
#   make asan     the tests under AddressSanitizer and UBSan
#   make tsan     the concurrent tests under ThreadSanitizer
#   make fuzz     each fuzzer for FUZZ_SECONDS (30)
#   make torture  the long crash tests: 1000 kills, power cuts, faults
#   make check    layers, format, files
#   make format   lay out the C files

JOBS ?= $(shell nproc)
FUZZ_SECONDS ?= 30
CTEST = ctest --output-on-failure --no-tests=error

.PHONY: run test demo build deps bench asan tsan fuzz torture check format

run:
	@tools/deps build
	@$(MAKE) --no-print-directory build
	@exec build/weir serve

build:
	@cmake -G Ninja -B build $(BUILD_OPTIONS) >build.log 2>&1 || { cat build.log; rm -f build.log; exit 1; }
	@rm -f build.log
	@cmake --build build --parallel $(JOBS)

deps:
	@tools/deps build test

test:
	@tools/deps build test
	@$(MAKE) --no-print-directory build BUILD_OPTIONS=-DWEIR_TESTS=ON
	@cd build && $(CTEST) -j$(JOBS) -LE torture $(CTEST_OPTIONS)

demo:
	@tools/deps build demo
	@$(MAKE) --no-print-directory build
	@tools/demo build/weir

bench:
	@tools/deps build bench
	@$(MAKE) --no-print-directory build BUILD_OPTIONS=-DWEIR_BENCH=ON
	@bench/run --weir build/weir $(BENCH)

asan:
	@tools/deps build test
	@cmake -G Ninja -B build-asan -DWEIR_TESTS=ON -DWEIR_SANITIZE=address,undefined >/dev/null
	@cmake --build build-asan --parallel $(JOBS)
	@cd build-asan && $(CTEST) -j$(JOBS) -LE 'torture|crash' $(CTEST_OPTIONS)

tsan:
	@tools/deps build test
	@cmake -G Ninja -B build-tsan -DWEIR_TESTS=ON -DWEIR_SANITIZE=thread >/dev/null
	@cmake --build build-tsan --parallel $(JOBS)
	@cd build-tsan && $(CTEST) -j$(JOBS) -L concurrent $(CTEST_OPTIONS)

fuzz:
	@tools/deps build fuzz
	@CC=clang CXX=clang++ cmake -G Ninja -B build-fuzz -DWEIR_FUZZ=ON -DWEIR_SANITIZE=address,undefined >/dev/null
	@cmake --build build-fuzz --parallel $(JOBS)
	@tools/fuzz build-fuzz $(FUZZ_SECONDS)

torture:
	@tools/deps build test
	@$(MAKE) --no-print-directory build BUILD_OPTIONS=-DWEIR_TESTS=ON
	@cd build && $(CTEST) -L torture $(CTEST_OPTIONS)

check:
	@tools/deps format
	@tools/check_layers
	@tools/check_files
	@tools/check_format

format:
	@tools/deps format
	@git ls-files -co --exclude-standard 'src/*.[ch]' 'src/*.cc' 'include/*.h' 'tests/*.[ch]' 'bench/*.[ch]' | xargs clang-format -i
