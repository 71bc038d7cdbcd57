// swift-tools-version:5.9
import PackageDescription

let package = Package(
    name: "LdpstreamDevice",
    platforms: [.iOS(.v15), .macOS(.v12)],
    products: [.library(name: "LdpstreamDevice", targets: ["LdpstreamDevice"])],
    targets: [
        .target(name: "LdpstreamDevice", dependencies: ["LdpstreamDeviceFFI"]),
        .binaryTarget(name: "LdpstreamDeviceFFI", path: "LdpstreamDeviceFFI.xcframework"),
    ]
)
